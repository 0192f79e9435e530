"""How long the dashboard takes to open a large run: 5,000 records in a cold process, and each rerun of a page.

A small suite is run, and its records are stored again under other cells, sealed anew. Each page is opened in a process of its
own, after Streamlit is loaded, as a server that has just been started would; the files are in the system's cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import arguments, keep

import fedguard as fg
from fedguard.bench.records.store import RunFolder
from fedguard.bench.results.run import Run

SUITE = {
    "name": "large",
    "clients": {"total": 10, "malicious": 2},
    "training": {"rounds": 30},
    "seeds": 3,
    "matrix": {"attack": ["none", "sign_flip", "ipm"], "defense": ["mean", "median", "trimmed_mean"]},
}
PAGES = ("overview", "matrix", "cell", "breakdown")
RERUNS = 5
OPENED = """
import json, os, time
from streamlit.testing.v1 import AppTest
page = '''
import os
from pathlib import Path
import streamlit as st
from fedguard.app.here import PageContext
from fedguard.app.views import pages
known = {name: st.Page(lambda: None, url_path=name, title=name, default=name == "overview") for name in pages()}
st.navigation(list(known.values()))
pages()[os.environ["PAGE"]].show(PageContext(Path(os.environ["FEDGUARD_STORE"]), "large", known))
'''
test, seconds = AppTest.from_string(page, default_timeout=300), []
for _ in range(int(os.environ["TIMES"])):
    begun = time.perf_counter(), time.process_time()
    test.run()
    seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    assert not test.exception, test.exception
print(json.dumps(seconds))
"""


def enlarged(run: Run, folder: Path, records: int) -> None:
    """The run's cells again and again, as those of a swept number, until there are so many records."""
    large, positions = RunFolder(folder), []
    large.create()
    for number in range(records // (len(run.manifest["positions"]) * len(run.seeds)) + 1):
        for one in run.manifest["positions"]:
            cell = hashlib.sha256(f"{number} {one['cell']}".encode()).hexdigest()[:12]
            for seed in run.seeds:
                large.write({**run.records[one["cell"], seed], "cell": cell})
            positions.append({"cell": cell, "swept": {"clients.malicious": str(number), **one["swept"]}})
    swept = ["clients.malicious", *run.manifest["swept"]]
    manifest = {**run.manifest, "swept": swept, "positions": positions}
    large.write_manifest(manifest, (run.folder.path / "config.resolved.yaml").read_text())


def opened(store: Path, page: str) -> dict[str, Any]:
    """Seconds, by the clock and of the processor, until a page is drawn in a new process; and the slowest of some reruns."""
    told = {**os.environ, "FEDGUARD_STORE": str(store), "PAGE": page, "TIMES": str(1 + RERUNS), "OMP_NUM_THREADS": "1"}
    said = subprocess.run([sys.executable, "-c", OPENED], env=told, check=True, capture_output=True, text=True)
    first, *again = json.loads(said.stdout.splitlines()[-1])
    slowest = [max(column) for column in zip(*again, strict=True)]
    return {
        "page": page,
        "first, s": first[0],
        "first, CPU s": first[1],
        "again, s": slowest[0],
        "again, CPU s": slowest[1],
    }


def main() -> None:
    options = arguments(__doc__ or "")
    records = 100 if options.smoke else 5000
    with tempfile.TemporaryDirectory() as folder:
        small, store = Path(folder) / "small", Path(folder) / "store"
        enlarged(fg.run(SUITE, store=small), store / "large", records)
        stored = len(list(store.glob("large/cells/*/*.json")))
        print(f"{stored:,} records")
        figures = []
        for page in PAGES:
            figure = {**opened(store, page), "records": stored}
            figures.append(figure)
            print(
                "  ".join(
                    f"{key} {value:.2f}" if isinstance(value, float) else str(value) for key, value in figure.items()
                )
            )
    keep(options.json, figures)


if __name__ == "__main__":
    main()
