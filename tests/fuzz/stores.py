"""Stores that a full disk, another program or somebody in bad faith has damaged: a small store, each time changed at one place.

    python -m tests.fuzz.stores --count 300 --seed 0

has every reader read each of them, in a process of its own, and prints what is answered by anything but figures or one clear
line: a fault of FedGuard, a hang, a crash, what no terminal should be sent, a damaged file that nobody names, a changed store.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import io
import json
import os
import random
import shutil
import signal
import stat
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fedguard as fg
from fedguard.errors import FedGuardError

ROOT = Path(__file__).resolve().parents[2]

#: No reader may take longer, in seconds by the clock: a file that never ends takes no time of the processor.
LIMIT = 30

SUITE: dict[str, Any] = {
    "name": "small",
    "task": {"model": {"name": "mlp", "hidden": [8]}, "partition": {"kind": "dirichlet", "alpha": 1.0}},
    "clients": {"total": 6, "malicious": 1},
    "threat": {"knowledge": ["own_data", "model"]},
    "training": {"algorithm": "fedsgd", "rounds": 2, "batch_size": 8, "lr": 0.5},
    "observer": {"server": "malicious", "victims": 1, "candidates": 20},
    "gate": {"confirm": 3, "audit": False},
    "seeds": 2,
    "matrix": {
        "protocol": [
            {"secure_aggregation": "none"},
            {"secure_aggregation": "full"},
            {"privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1.0e-5, "sample_rate": 0.2}},
        ],
        "attack": ["none", "sign_flip", "robbing_the_fed", "fed_mia"],
        "defense": ["mean"],
    },
}

#: In place of a value, as JSON.
VALUES = (
    "null", "true", "false", "0", "-1", "1", "0.5", "1e308", "-1e308", "1e-320", "1e999", "NaN", "Infinity", "9" * 400, "9" * 5000, '""',
    '"x"', '"none"', '"../../x"', '"\\u001b[31mred"', '"\\u0000"', '"\\ud800"', '"\\u202e"', '"\\r"', '"' + "x" * 3000 + '"', '"1e5"',
    "[]", "{}", "[[]]", "[null]", "[1, 2]", '["x"]', '{"": 1}', '{"x": {"y": [1]}}', "[" * 150 + "]" * 150, '{"a":' * 900 + "1" + "}" * 900,
    "[" * 90_000 + "]" * 90_000,
)  # fmt: skip

#: In place of a whole file.
CONTENTS = (
    b"", b"{", b"{}", b"[]", b"null", b"1", b'"x"', b"NaN", b"\x00" * 100, b"\xff\xfe\x00", b"\xef\xbb\xbf{}", b"[" * 100_000,
    b'{"a":' * 5_000, b'{"schema": 1}', b'{"schema": 2}', b'{"schema": 1, "kind": "fedguard-baseline"}', b"a: &a [*a]", b"PK\x03\x04", b"\x1b[31m",
)  # fmt: skip

#: In place of a file, something else.
OTHERS = ("folder", "fifo", "nowhere", "itself", "device", "huge", "gone")


@dataclass(frozen=True)
class Case:
    """One damage.

    Attributes:
        what: in words.
        harm: does it, given the store.
        names: what must be said by the reader named first, as the file is certainly of no use; None where it may still be.
    """

    what: str
    harm: Callable[[Path], None]
    names: str | None = None


def small_store(folder: Path, suite: dict[str, Any] = SUITE) -> Path:
    """A store with a run, a copy of it, and beside them a verdict, an audit and a baseline."""
    from fedguard.bench.audits.suites import CellAudit, store_audit
    from fedguard.bench.gate.baseline import Baseline
    from fedguard.bench.gate.judge import judge
    from fedguard.bench.gate.verdict_store import keep
    from fedguard.bench.gate.work import Work
    from fedguard.contracts.audit import Check
    from fedguard.privacy.audit import Audit
    from fedguard.privacy.audit.contract import Bound

    store = folder / "store"
    run = fg.run(suite, store=store, jobs=1)
    bound = Bound(method="gdp_split", epsilon=0.5, delta=1e-5, kind="bound", confidence=0.95)
    seen = Audit(
        subject="DP-SGD",
        claimed=1.0,
        claim="of a record",
        bound=bound,
        canaries=40,
        refuted=False,
        checks=(Check(name="law", p_value=0.4, words="normal"),),
        verdict="consistent",
        words="nothing speaks against it",
    )
    cells = [one["cell"] for one in run.manifest["positions"]]
    store_audit(run.folder, cells, [CellAudit(cells=("none",), audit=seen)], "gdp_split")
    work = Work(run)
    base = Baseline.of(work.snapshot, None, "saved")
    base.write(folder / "baseline.json")
    keep(judge(work.snapshot, base, confirm=lambda cells, seeds: work.snapshot), run.folder)
    shutil.copytree(run.folder.path, store / "other")
    return store


def cases(store: Path, count: int, seed: int) -> Iterator[Case]:
    """Damages of the run ``small``: files replaced, values changed and sealed again, bytes lost."""
    rng = random.Random(seed)
    files = sorted(
        path.relative_to(store) for path in (store / "small").rglob("*") if path.is_file() and path.stat().st_size
    )
    records = [path for path in files if path.parts[1] == "cells"]
    told = [
        path
        for path in files
        if path.name in ("manifest.json", "audit.json", "config.resolved.yaml") or path.parts[1] == "gate"
    ]
    pictures = [path for path in files if path.parts[1] == "artifacts"]
    for _ in range(count):
        path = rng.choice(rng.choices((records, told, [Path("small/manifest.json")], pictures), (6, 3, 3, 1))[0])
        yield rng.choices((_value, _content, _other, _bytes, _shape), (8, 2, 2, 1, 1))[0](store, path, rng)


def readers(store: Path, run: str = "small", deep: bool = False) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What reads a store, by its name.

    Args:
        deep: whether the report is drawn and every page of the dashboard visited, which takes seconds.
    """
    out = store.parent / f"out-{os.getpid()}"
    for words in (
        ["show", run], ["show", run, "--json"], ["show", run, "--profile"], ["lint", run], ["lint", run, "--json"],
        ["breakdown", run, "--over", "protocol"], ["privacy", run], ["compare", run, "other"], ["compare", "other", run, "--json"], ["export", run, "--to", f"csv:{out}", "--force"],
    ):  # fmt: skip
        yield (
            " ".join(words[:1] + [one for one in words[2:] if one != str(out)]),
            partial(_command, [*words, "--store", str(store)]),
        )
    yield "baseline", partial(_baseline, store, run)
    yield "dashboard", partial(_dashboard, store, run)
    if deep:
        yield "report", partial(_command, ["report", run, "--to", f"html:{out}", "--force", "--store", str(store)])
        from tests.views import VIEWS

        wanted = [view for view in VIEWS if view.page.reads == "run" or view.name == "gate"]
        yield from ((f"page {view}", partial(_page, store, run, view)) for view in wanted)


def load(store: Path) -> None:
    """Read the sound store once, which no reader may refuse: what it imports is there for all that follow."""
    for _, read in readers(store):
        read()


def answers(store: Path, case: Case, deep: bool = False) -> list[str]:
    """What is wrong with how a damaged store is read, a line each."""
    told, tell = os.pipe()
    before = _state(store)
    child = os.fork()
    if child == 0:  # pragma: no cover  another process
        os.close(told)
        _read_all(store, case, deep, tell)
        os._exit(0)
    os.close(tell)
    with os.fdopen(told, encoding="utf-8", errors="replace") as lines:
        said = [json.loads(line) for line in lines]
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    bad = [f"{one['reader']}: {one['wrong']}" for one in said if one.get("wrong")]
    if ended:
        word = "hang" if ended == -signal.SIGALRM else f"crash, signal {-ended}"
        bad.append(f"{said[-1]['reader'] if said else '?'}: {word}")
    if _state(store) != before:
        bad.append("store: changed by reading")
    return bad


def _read_all(store: Path, case: Case, deep: bool, tell: int) -> None:
    """Every reader in its turn; what is wrong is told as it is found, since the next may not come back."""
    import warnings

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with os.fdopen(tell, "w", encoding="utf-8") as out:

        def say(**facts: str) -> None:
            out.write(json.dumps(facts) + "\n")
            out.flush()

        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for name, read in readers(store, deep=deep):
            say(reader=name)
            signal.alarm(LIMIT)
            try:
                said = read() or ""
                if name == "show" and case.names is not None:
                    assert case.names in said.replace("\n", ""), f"nobody names {case.names}: {said[-300:]!r}"
            except AssertionError as error:
                say(reader=name, wrong=str(error))
            except BaseException as error:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                say(
                    reader=name,
                    wrong=f"fault: {type(error).__name__}: {str(error)[:150]!r} ({Path(frame.filename).name}:{frame.lineno})",
                )
            signal.alarm(0)


def _command(words: list[str]) -> str:
    """What a command prints, errors included; raises what is no answer."""
    from fedguard.cli import app

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            app(words, standalone_mode=False)
    except FedGuardError as error:
        _one_line(error)
        said.write(str(error))
    text = said.getvalue()
    hostile = {one for one in text if not one.isprintable() and one not in "\n\t"}
    assert not hostile, f"what no terminal should be sent: {sorted(hostile)!r}"
    return text


def _one_line(error: FedGuardError) -> None:
    said = str(error)
    assert "\n" not in said, f"several lines: {said[:300]!r}"
    assert len(said) <= 1500, f"a line of {len(said)} characters: {said[:200]!r}"


def _refusing(read: Callable[[], Any]) -> Any:
    """What it gives, or None where it refuses in one line."""
    try:
        return read()
    except FedGuardError as error:
        _one_line(error)
        return None


def _baseline(store: Path, run: str) -> None:
    """What `fedguard gate` and `fedguard baseline` know of a run, without any training."""
    from fedguard.bench.gate.baseline import Baseline, read
    from fedguard.bench.gate.judge import judge
    from fedguard.bench.gate.work import Work

    base = read(store.parent / "baseline.json")
    work = _refusing(lambda: Work(fg.open_run(run, store)))
    if work is not None and _refusing(lambda: work.snapshot) is not None:
        _refusing(lambda: Baseline.of(work.snapshot, None, "why"))
        _refusing(lambda: judge(work.snapshot, base, confirm=lambda cells, seeds: base.snapshot, stale=work.stale))


def _read(page, run) -> list:
    return list(page.blocks(run, {}))


def _dashboard(store: Path, run: str) -> None:
    """What the pages of the dashboard read."""
    from fedguard.app import data
    from fedguard.bench.audits.suites import load_audit
    from fedguard.bench.gate.verdict_store import verdicts
    from fedguard.bench.pages.breakdown import BREAKDOWN
    from fedguard.bench.pages.cell import CELL
    from fedguard.bench.pages.compare import COMPARE
    from fedguard.bench.pages.gate import GATE
    from fedguard.bench.records.store import RunFolder
    from fedguard.bench.results import disclosure

    names = data.run_names(store)
    assert "other" in names and run in names, f"the store has lost runs: {names}"
    found = {name: data.summary(store, name) for name in names}
    assert not found["other"].error, f"a sound run is refused: {found['other'].error}"
    verdicts(RunFolder(store / run))
    opened = _refusing(lambda: data.open_run(store, run))
    if opened is None:
        return
    data.sum_up(opened)
    _refusing(lambda: opened.checks)
    audit = _refusing(lambda: load_audit(opened.folder))
    if audit is not None:
        audit.doubts(opened)
    for page in (BREAKDOWN, COMPARE, GATE):
        _refusing(partial(_read, page, opened))
    for read in (disclosure.promises, disclosure.summarize_masking):
        _refusing(partial(read, opened))
    disclosure.pool_target_scores(disclosure.list_membership_targets(opened))
    for one in disclosure.rebuilt(opened):
        if one.arrays is not None:
            _refusing(partial(disclosure.picture, one.arrays, 4))
    for one in opened.manifest["positions"]:
        _refusing(lambda address=one["swept"]: list(CELL.blocks(opened, address)))


def _page(store: Path, run: str, view: Any) -> None:
    """A page, as a reader visits it."""
    import importlib.util

    from streamlit.testing.v1 import AppTest
    from streamlit.util import calc_hash

    os.environ["FEDGUARD_STORE"] = str(store)
    main = importlib.util.find_spec("fedguard.app.main")
    assert main is not None and main.origin is not None
    test = AppTest.from_file(main.origin, default_timeout=LIMIT)
    test._page_hash = calc_hash("" if view.name == "overview" else view.name)
    test.query_params.update(view.query | {"run": run})
    test.run()
    if test.exception:
        trace = " ".join(test.exception[0].stack_trace[-2:])
        raise AssertionError(f"{test.exception[0].value!r} {trace}"[:400])


def _state(store: Path) -> dict[str, Any]:
    """All that is stored."""
    found: dict[str, Any] = {}
    for path in sorted([*store.rglob("*"), store.parent / "baseline.json"]):
        one = path.lstat()
        content: Any = None
        if stat.S_ISLNK(one.st_mode):
            content = str(path.readlink())
        elif stat.S_ISREG(one.st_mode) and one.st_size < 10_000_000:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path)] = (stat.S_IFMT(one.st_mode), one.st_size if content else 0, content)
    return found


def _sealed(record: Any) -> bool:
    return isinstance(record, dict) and "sha256" in record


def _put(path: Path, text: str) -> None:
    """JSON text into its file, sealed again where it was."""
    if text.endswith('"sha256": ""}'):
        sealed = text.encode("utf-8", "surrogatepass")
        path.write_bytes(sealed[:-2] + hashlib.sha256(sealed).hexdigest().encode() + sealed[-2:])
    else:
        path.write_text(text)


def _json(path: Path) -> Any:
    found = json.loads(path.read_text())
    if _sealed(found):
        del found["sha256"]
        found["sha256"] = ""
    return found


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Each container with each of its keys, but the seal."""
    found = []
    waiting = [data]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else list(range(len(one)))
        found += [(one, key) for key in keys if key != "sha256"]
        waiting += [one[key] for key in keys if isinstance(one[key], dict | list)]
    return found


def _value(store: Path, path: Path, rng: random.Random) -> Case:
    """One value of JSON becomes another, or goes, or gets another key."""
    if path.suffix != ".json":
        return _content(store, path, rng)
    data = _json(store / path)
    # Of each kind of place alike, however many there are of it: those of a record's result, say, and those of its roc curve.
    kinds: dict[Any, list[tuple[Any, Any]]] = {}
    for node, key in _places(data):
        kinds.setdefault(
            (id(node) if isinstance(node, dict) else None, key if isinstance(key, str) else None), []
        ).append((node, key))
    node, key = rng.choice(rng.choice(list(kinds.values())))
    value = rng.choice(VALUES)
    way = rng.random()
    if way < 0.15:
        del node[key]
        value = "gone"
    elif way < 0.2 and isinstance(node, dict):
        node["\x1b[31mx"] = copy.deepcopy(node.pop(key))
        value = "renamed"
    else:
        node[key] = "PLACE"
    text = json.dumps(data)
    if _sealed(data):
        del data["sha256"]
        text = json.dumps({**data, "sha256": ""})
    text = text.replace('"PLACE"', value, 1)
    return Case(f"{path}: {key} is {value[:30]}", lambda there: _put(there / path, text))


def _content(store: Path, path: Path, rng: random.Random) -> Case:
    content = rng.choice(CONTENTS)
    return Case(
        f"{path}: holds {content[:20]!r}", lambda there: (there / path).write_bytes(content) and None, _named(path)
    )


def _other(store: Path, path: Path, rng: random.Random) -> Case:
    other = rng.choice(OTHERS)

    def harm(there: Path) -> None:
        place = there / path
        place.unlink()
        if other == "folder":
            place.mkdir()
        elif other == "fifo":
            os.mkfifo(place)
        elif other == "nowhere":
            place.symlink_to("/nowhere/at/all")
        elif other == "itself":
            place.symlink_to(place)
        elif other == "device":
            place.symlink_to("/dev/zero")
        elif other == "huge":
            with place.open("wb") as file:
                file.truncate(1 << 40)

    return Case(f"{path}: {other}", harm, None if other == "gone" else _named(path))


def _bytes(store: Path, path: Path, rng: random.Random) -> Case:
    """Some bytes are lost or changed."""
    content = bytearray((store / path).read_bytes())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content))
        if rng.random() < 0.3:
            del content[at:]
            content += b" "
        else:
            content[at] = rng.choice((0, 7, 27, 10, 34, 44, 91, 123, 255, rng.randrange(256)))
    return Case(f"{path}: bytes", lambda there: (there / path).write_bytes(bytes(content)) and None)


def _shape(store: Path, path: Path, rng: random.Random) -> Case:
    """A folder that is a file, a record that is another's, a name that no terminal should be sent."""
    where = path.parent
    records = sorted(one.relative_to(store) for one in (store / "small" / "cells").glob("*/*.json"))
    one, two = rng.sample(records, 2)

    def file(there: Path) -> None:
        shutil.rmtree(there / where) if len(where.parts) > 1 else None
        (there / where).write_text("x") if len(where.parts) > 1 else None

    def swap(there: Path) -> None:
        shutil.copyfile(there / one, there / two)

    def clutter(there: Path) -> None:
        (there / "\x1b[31mred").mkdir()
        (there / "\x1b[31mred" / "manifest.json").symlink_to("/nowhere")
        (there / "a file").write_text("x")
        os.mkfifo(there / "small" / "cells" / "fifo")

    return rng.choice(
        (
            Case(f"{where} is a file", file),
            Case(f"{two} is {one}", swap, two.name),
            Case("clutter in the store", clutter),
        )
    )


def _named(path: Path) -> str | None:
    """What of a file `show` must name, where it reads it."""
    return path.name if path.parts[1] == "cells" or path.name == "manifest.json" else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--deep", type=int, default=10, help="of one store in so many a report is drawn too, and each page; 0 for none"
    )
    parser.add_argument("--only", type=int, help="the number of one damage, which is left in the folder")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "fuzz-stores", help="where the sound store is kept"
    )
    given = parser.parse_args()
    if not (given.folder / "baseline.json").exists():
        shutil.rmtree(given.folder, ignore_errors=True)
        small_store(given.folder)
    load(given.folder / "store")
    bad: Counter[str] = Counter()
    asked = answered = 0
    for number, case in enumerate(cases(given.folder / "store", given.count, given.seed)):
        if given.only not in (None, number):
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) if given.only is None else given.folder / "only"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(given.folder, place, ignore=lambda _, names: {"only"} & set(names))
            case.harm(place / "store")
            deep = bool(given.deep) and number % given.deep == 0
            asked += sum(1 for _ in readers(place / "store", deep=deep))
            found = answers(place / "store", case, deep=deep)
            answered += len(found)
            bad.update(one.partition(": ")[0] for one in found)
            for line in found:
                sys.stdout.write(f"{number} {case.what[:100]!r}: {line}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{asked} reads of {given.count} damaged stores, {answered} answered badly {dict(bad)}\n")
    sys.exit(answered > 0)


if __name__ == "__main__":
    main()
