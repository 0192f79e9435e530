"""Controls: the table keeps its schema, evidence is the worst value by plain loops, and what was not tested is said."""

from __future__ import annotations

import json

import pytest
import yaml
from pydantic import ValidationError

import fedguard as fg
from fedguard.bench.controls.evidence import collect_evidence
from fedguard.bench.controls.report import NOT_TESTED, describe_controls
from fedguard.bench.controls.table import FILE, ControlTable, load_controls
from fedguard.bench.pages.blocks import Facts, Verdict
from fedguard.metrics.figures import FIGURES
from tests.forked import fedguard
from tests.stores import SHORT

ATTACKS, DEFENSES = ["none", "ipm(tau=5)", "sign_flip"], ["mean", "median"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    suite = {**SHORT, "name": "controlled", "seeds": 3, "matrix": {"attack": ATTACKS, "defense": DEFENSES}}
    return fg.run(suite, store=tmp_path_factory.mktemp("controls") / "runs", jobs=1)


def control(run, text: str, id: str):
    return next(
        one for one in collect_evidence(run, load_controls()) if (one.control.text, one.control.id) == (text, id)
    )


def test_every_row_names_metrics_that_exist_and_a_text_with_version_and_link():
    table = load_controls()
    assert len(table.controls) >= 15 and len(table.texts) >= 5
    assert all(source.metric in FIGURES for one in table.controls for source in one.evidence)
    assert any(not one.evidence for one in table.controls), "what nothing here measures is listed as well"
    ids = [(one.text, one.id) for one in table.controls]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table["controls"][0]["evidence"][0].update(metric="robustness"),
        lambda table: table["controls"][0].update(text="another"),
        lambda table: table["controls"][0].pop("not_shown"),
        lambda table: table["texts"]["ai-act"].update(grade="memory"),
        lambda table: table["texts"]["ai-act"].update(url="http://example.org"),
        lambda table: table["controls"][0].update(compliant=True),
    ],
)
def test_a_row_that_breaks_the_schema_is_refused(change):
    table = yaml.safe_load(FILE.read_text())
    change(table)
    with pytest.raises(ValidationError):
        ControlTable.model_validate(table)


def test_the_word_compliant_is_nowhere():
    assert "compliant" not in FILE.read_text().replace('Never "compliant"', "")


def test_evidence_is_the_worst_value_of_each_defense_by_a_plain_loop(run):
    found = control(run, "aisvs-11", "11.2.4").found
    assert [one.defense for one in found] == DEFENSES
    for one in found:
        means = {}
        for attack in ATTACKS[1:]:
            values = [
                row["final_accuracy"] for row in run.rows() if (row["attack"], row["defense"]) == (attack, one.defense)
            ]
            means[attack] = sum(values) / len(values)
        assert one.value.mean == pytest.approx(min(means.values())) and one.attack == min(means, key=means.get)
        assert one.value.seeds == 3 and one.value.low < one.value.mean < one.value.high


def test_clean_rows_are_those_without_attack(run):
    found = control(run, "ai-act", "15(3)").found
    assert {one.attack for one in found} == {"none"}
    assert [one.metric for one in found] == ["final_accuracy"] * 2 + ["worst_class_accuracy"] * 2


def test_what_was_not_tested_is_said_in_the_same_size(run):
    blocks = list(describe_controls(run, load_controls()))
    facts = [one for one in blocks if isinstance(one, Facts)]
    assert len(facts) == len(load_controls().controls)
    tested = sum(dict(one.items)["evidence"] != [NOT_TESTED] for one in facts)
    assert 3 <= tested < len(facts) and isinstance(blocks[0], Verdict)
    assert blocks[0].headline.startswith(f"This run is evidence for {tested} of {len(facts)} controls")
    assert all([key for key, _ in one.items] == ["asks", "evidence", "does not show"] for one in facts)


def test_the_command_prints_and_writes_the_report(run, tmp_path):
    store = str(run.folder.path.parent)
    said = fedguard("controls", "controlled", "--store", store, cwd=tmp_path)
    assert said.returncode == 0 and "not tested" in said.stdout and "ipm(tau=5)" in said.stdout, said.stderr
    done = fedguard("controls", "controlled", "--store", store, "--to", "c.md", "--to", "c.json", cwd=tmp_path)
    assert done.returncode == 0 and "not tested" in (tmp_path / "c.md").read_text(), done.stderr
    kept = json.loads((tmp_path / "c.json").read_text())
    assert sum(one["tested"] for one in kept["controls"]) == sum(
        bool(one.found) for one in collect_evidence(run, load_controls())
    )
    assert fedguard("controls", "nothing", "--store", store, cwd=tmp_path).returncode == 2
