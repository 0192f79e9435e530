"""Secure aggregation in a run as a list of blocks: the numbers are those of the records."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fedguard as fg
from fedguard.bench.pages.blocks import Choice, More, Prose, TableBlock, Verdict
from fedguard.bench.pages.secagg import SECAGG

SUITE = {
    "name": "masked",
    "clients": {"total": 8, "malicious": 1},
    "training": {"rounds": 2},
    "seeds": 2,
    "matrix": {
        "protocol.secure_aggregation": ["none", "full", {"groups": 2}],
        "attack": ["none", "sign_flip"],
        "defense": ["mean", "median"],
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=1)


def page(run: fg.Run, **address: str) -> list:
    return list(SECAGG.blocks(run, address))


def table(run: fg.Run, **address: str) -> dict[str, dict]:
    """The values of each mode, from all three tables."""
    found: dict[str, dict] = {}
    for block in page(run, **address):
        for row in block.rows if isinstance(block, TableBlock) else ():
            found.setdefault(row[0], {}).update(zip([one.name for one in block.columns], row, strict=True))
    return found


def test_each_mode_is_a_row_with_the_numbers_of_its_records(run):
    rows = table(run)
    tables = [one for one in page(run) if isinstance(one, TableBlock)]
    assert len(tables) == 3 and max(len(one.columns) for one in tables) <= 6, (
        "what is wider scrolls sideways at 1,440 pixels"
    )
    assert list(rows) == ["no protection", "secure aggregation", "secure aggregation, groups"]
    for name, mode in (("secure aggregation", "full"), ("secure aggregation, groups", "groups")):
        records = [r for _, r in run.trials() if (r["result"]["secure_aggregation"] or {}).get("mode") == mode]
        sums = [one["result"]["secure_aggregation"] for one in records]
        row = rows[name]
        assert row["smallest crowd"] == str(min(one["anonymity"] for one in sums))
        assert row["sums lost"] == f"0 of {sum(one['sessions'] for one in sums)}"
        clean = [
            one["result"]["final_accuracy"]
            for one in records
            if one["threat_card"]["attack"] is None and one["threat_card"]["defense"] == "mean"
        ]
        assert row["no attack, %"] == f"{100 * sum(clean) / 2:.1f}", "no interval at two seeds"
        assert row["which"] == "sign_flip"
    assert rows["secure aggregation"]["defenses that run"] == "1 of 2; refused: median"
    assert rows["no protection"]["defenses that run"] == "2 of 2" and rows["no protection"]["smallest crowd"] == "1"
    assert table(run, defense="median")["secure aggregation"]["no attack, %"] == "-"


def test_the_verdict_names_the_smallest_crowd_of_each_mode(run):
    verdict, choice, *rest = page(run)
    crowds = {name: row["smallest crowd"] for name, row in table(run).items()}
    assert isinstance(verdict, Verdict) and isinstance(choice, Choice)
    assert f"{crowds['secure aggregation']} clients (full)" in verdict.headline
    assert f"{crowds['secure aggregation, groups']} clients (groups)" in verdict.headline
    refused = len({row["cell"] for row in run.rows() if row["status"] == "refused"})
    (more,) = [one for one in rest if isinstance(one, More)]
    assert more.title == f"Refused, and why ({refused} cells)"


def test_aborted_sessions_are_stated_with_their_cause(tmp_path):
    few = {"rounds": 12}
    suite = {**SUITE, "training": few, "seeds": 1, "protocol": {"dropout": {"rate": 0.2, "at": "masked_input"}}}
    suite["matrix"] = {"protocol.secure_aggregation": [{"groups": 2}], "attack": ["none"], "defense": ["mean"]}
    run = fg.run(suite, store=tmp_path, jobs=1)
    (record,) = [one for _, one in run.trials()]
    sums = record["result"]["secure_aggregation"]
    assert sums["aborted_sessions"], "a test that loses nothing"
    (said,) = [one for one in page(run) if isinstance(one, Prose)]
    assert (
        f"{sums['aborted_sessions']} of {sums['sessions']} sums lost. The first: {sums['why_aborted']}"
        in said.paragraphs[0]
    )
    assert f"{sums['aborted_sessions']} of {sums['sessions']} sums were lost." in page(run)[0].lead


def test_a_run_without_masks_names_the_command(run):
    plain = [one for one in run.manifest["positions"] if one["swept"]["protocol.secure_aggregation"] == "none"]
    (verdict, *rest) = page(replace(run, manifest={**run.manifest, "positions": plain}))
    assert verdict.headline == "This run masks nothing" and not any(isinstance(one, TableBlock) for one in rest)
    assert verdict.actions[0].command == "fedguard run examples/secure_aggregation.yaml"
