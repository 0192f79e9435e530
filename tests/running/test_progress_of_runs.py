"""A listener that follows several runs counts each of them anew."""

from __future__ import annotations

import io

from rich.console import Console

from fedguard.bench.running.progress import Bars, Lines

RECORD = {"cell": "0" * 12, "seed": 0, "status": "ok", "label": "no attack against mean"}


def play(listener, trials: int) -> None:
    listener.begin(trials, 0, 0, 1)
    for seed in range(trials):
        listener.note_start((RECORD["cell"], seed), RECORD["label"])
        listener.note_record({**RECORD, "seed": seed})
    listener.close()


def test_lines_count_the_trials_of_each_run():
    out = io.StringIO()
    listener = Lines(Console(file=out, width=120), every=0.0)
    play(listener, 5)
    play(listener, 3)
    lines = [line for line in out.getvalue().splitlines() if line.startswith("[")]
    assert [line.partition("]")[0] for line in lines] == ["[2/5", "[3/5", "[4/5", "[5/5", "[2/3", "[3/3"]
    assert not any("] -" in line for line in lines)


def test_bars_show_one_suite_at_a_time():
    listener = Bars(Console(file=io.StringIO(), force_terminal=True))
    play(listener, 5)
    play(listener, 3)
    (task,) = listener._progress.tasks
    assert (task.total, task.completed) == (3, 3)
