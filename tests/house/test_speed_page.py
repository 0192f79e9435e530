"""The page on speed says what the files say: met, missed, not measured, and where a file is no file of figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

pytest.importorskip("vl_convert")
from docs_tools.goals import COMMANDS, GOALS, read
from docs_tools.speed import MEASURED, written
from fedguard.errors import InputError
from tests.forked import called
from tests.root import ROOT

WHERE = {"processor": "An Old Abacus", "cores": 3, "threads": 1, "torch": "9.9", "load": [0.25, 1.5]}


def kept(folder, name, figures):
    (folder / f"{name}.json").write_text(json.dumps({**WHERE, "figures": figures}))


def rows(markdown):
    """The cells of each row of each table, without markup."""
    found = re.findall(r"<tr>(.*?)</tr>", markdown.replace("\N{NO-BREAK SPACE}", " "))
    return [[re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", row)] for row in found]


def goal(markdown, what):
    (row,) = [row for row in rows(markdown) if len(row) == 5 and row[0] == what and row[1].startswith("at ")]
    return row[1:]


def test_less_is_better_for_passes_and_more_for_ratios(tmp_path):
    sizes = {"n": 50, "d": 1_000_000}
    passes = {"median": 7.9, "trimmed_mean": 8.0, "krum": 5.1}
    kept(tmp_path, "rules", [{"defense": rule, "passes": value, **sizes} for rule, value in passes.items()])
    steps = {"a client's masks, AES-128": 6.9, "a client's masks, AES-256": 5.0, "bytes that a client sends": 2.4}
    kept(tmp_path, "secagg", [{"step": step, "ratio": value, **sizes} for step, value in steps.items()])
    page = written(read(tmp_path))
    assert goal(page, "median") == ["at most 8 passes", "7.9 passes", "met", "python benchmarks/rules.py"]
    assert goal(page, "trimmed_mean")[1:3] == ["8 passes", "met"]
    assert goal(page, "krum")[1:3] == ["5.1 passes", "missed"]
    assert goal(page, "a client&#x27;s masks, AES-128")[:3] == ["at least 7 x", "6.9 x", "missed"]
    assert goal(page, "a client&#x27;s masks, AES-256")[1:3] == ["5 x", "met"]
    assert goal(page, "bytes that a client sends")[1:3] == ["2.4 x", "met"]
    assert goal(page, "geometric_median")[1:3] == ["", "not measured"]
    everything = sum(len(goals) for _, goals in GOALS.values())
    assert f"Of {everything} goals: 4 met, 2 missed, {everything - 6} not measured." in page


def test_a_figure_that_misses_by_little_is_not_rounded_to_the_goal_and_called_missed_beside_it(tmp_path):
    kept(tmp_path, "start", [{"start": "fedguard --help", "seconds": 0.504}])
    _, said, verdict, _ = goal(written(read(tmp_path)), "fedguard --help")
    assert verdict == "missed"
    assert float(said.split()[0]) > 0.5


def test_figures_of_small_sizes_are_not_taken_for_the_real_ones(tmp_path):
    kept(tmp_path, "rules", [{"defense": "median", "passes": 1.0, "n": 12, "d": 2000}])
    kept(
        tmp_path,
        "peers",
        [{"system": "ByzFL", "cores": "all", "model": "softmax", "clients": 4, "images": 40, "slower_cpu": 99.0}],
    )
    page = written(read(tmp_path))
    assert goal(page, "median")[1:3] == ["", "not measured"]
    assert goal(page, "softmax, beside ByzFL")[1:3] == ["", "not measured"]


def test_nothing_measured_is_said_for_every_goal(tmp_path):
    page = written(read(tmp_path))
    assert [row[3] for row in rows(page) if len(row) == 5] == ["not measured"] * sum(
        len(of) for _, of in GOALS.values()
    )
    assert "<svg" not in page


def test_the_reason_stands_where_a_goal_is_missed_and_nowhere_else(tmp_path, monkeypatch):
    from dataclasses import replace

    says, goals = GOALS["Probes"]
    monkeypatch.setitem(GOALS, "Probes", (says, [replace(goals[0], why="The dog ate it.")]))
    for ratio, told in ((1.4, False), (1.6, True)):
        kept(tmp_path, "probes", [{"defense": "nnm >> krum", "ratio": ratio, "n": 50, "d": 1_000_000}])
        assert ("The dog ate it." in written(read(tmp_path))) is told


def test_growth_is_told_and_drawn(tmp_path):
    sizes = {"values": [10, 1000], "seconds": [0.01, 2.5], "bytes": [0, 7 * 2**20]}
    line = {"exponent": 1.199, "error": 0.0, "expected": "at most 2"}
    kept(
        tmp_path,
        "growth",
        [{"curve": "a rule", "grows": grows, "fixed": "all else", **sizes, **line} for grows in ("n", "d")],
    )
    page = written(read(tmp_path))
    assert ["a rule", "n", "all else", "1.20 ± 0.00", "at most 2", "1,000: 2.5 s, 7 MiB"] in rows(page)
    assert page.count("<svg") == 2
    assert page.count("currentColor") + page.count("currentcolor") > 10  # the page's ink, on light and on dark ground
    names = re.findall(r' id="(.*?)"', page)
    assert len(names) == len(set(names))


def test_peers_are_drawn_with_their_figures(tmp_path):
    trained = {
        "model": "softmax",
        "clients": 50,
        "images": 200,
        "cores": "all",
        "updates_per_second": 1.0,
        "slower": 1.0,
    }
    systems = {"FedGuard": (4321.0, 1.0), "ByzFL": (87.0, 49.7)}
    figures = [
        {**trained, "system": system, "updates_per_cpu_second": rate, "slower_cpu": slower}
        for system, (rate, slower) in systems.items()
    ]
    kept(
        tmp_path,
        "peers",
        [*figures, {"rule": "krum", "n": 50, "d": 1_000_000, "passes": 6.5, "byzfl": 26.5, "slower": 4.1}],
    )
    page = written(read(tmp_path))
    assert goal(page, "softmax, beside ByzFL")[1:3] == ["50 x", "met"]
    assert goal(page, "mlp, beside ByzFL")[1:3] == ["", "not measured"]
    drawn = re.findall(r"<text.*?>(.*?)</text>", "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL)))
    assert {"FedGuard", "ByzFL", "4,320", "87", "6.5", "26.5", "krum"} <= {text.strip() for text in drawn}


def test_where_it_was_measured_is_said(tmp_path):
    kept(tmp_path, "start", [])
    assert ["start.json", "An Old Abacus, 3 cores", "1", "9.9", "0.2 to 1.5"] in rows(written(read(tmp_path)))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"torch": "2"}', '{"figures": [1]}', '{"figures": {"a": 1}}', '{"figures": [{"passes": NaN}]}'],
)
def test_a_file_that_is_none_is_one_clear_line(tmp_path, text):
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(InputError, match=r"rules\.json: expected .*; got .* Run `make bench` again\.$") as raised:
        read(tmp_path)
    assert "\n" not in str(raised.value)


def test_the_command_writes_the_page_or_says_in_one_line_why_not(tmp_path):
    def run():
        return called("python", "-m", "docs_tools.speed", str(tmp_path), str(tmp_path / "speed.md"), cwd=ROOT)

    kept(tmp_path, "start", [{"start": "first cell of a suite", "seconds": 7.25}])
    assert run().returncode == 0
    assert goal((tmp_path / "speed.md").read_text(), "first cell of a suite")[2] == "missed"
    (tmp_path / "start.json").write_text("{")
    done = run()
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "start.json" in done.stderr


def test_what_is_committed_can_be_read_and_each_command_names_a_script():
    assert {path.stem for path in MEASURED.glob("*")} <= set(COMMANDS)
    read(MEASURED)
    for command in COMMANDS.values():
        assert (ROOT / command.split()[1]).is_file(), command
    assert {goal.file for _, goals in GOALS.values() for goal in goals} <= set(COMMANDS)


@pytest.mark.slow
def test_start_says_how_long_both_take(tmp_path):
    """The suite's first cell cannot begin before the command itself is there."""
    script, out = ROOT / "benchmarks" / "start.py", tmp_path / "out.json"
    subprocess.run([sys.executable, str(script), "--smoke", "--json", str(out)], check=True, capture_output=True)
    told = json.loads(out.read_text())
    helped, first, *_ = told["figures"]
    assert 0 < helped["seconds"] < first["seconds"] <= first["longest"]
    assert told["script"] == "start.py"
    assert len(told["load"]) == 2


def test_a_power_is_found_again_and_memory_is_what_was_asked_for(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import growth
    import measure
    import torch

    sizes = [1, 2, 4, 8]
    figure = {"curve": "planted", "grows": "n", "fixed": "", "values": sizes, "bytes": [None] * 4}
    told = growth._told({**figure, "seconds": [3 * size**1.5 for size in sizes]}, "1.5")
    assert told["exponent"] == pytest.approx(1.5)
    measured = [
        measure.peak_memory(lambda: torch.ones(16 * 2**20).sum()) for _ in range(2)
    ]  # 64 MiB, given back at once
    if measured[0] is not None:
        assert measured == pytest.approx([64 * 2**20] * 2, rel=0.1)
