"""Records: old ones are read by every reader, and what their schema says is what is stored."""

from __future__ import annotations

import json
import os
import shutil
from typing import get_type_hints

import jsonschema
import pytest
from rich.console import Console

from fedguard.app.report import render_report
from fedguard.bench.flags.lint import lint
from fedguard.bench.flags.results import results_of
from fedguard.bench.pages.overview import OVERVIEW
from fedguard.bench.pages.terminal import render_terminal
from fedguard.bench.records.record import curve, from_text, silent_mean
from fedguard.bench.records.schema import RECORD
from fedguard.bench.records.schema.document import FORMS, json_schema
from fedguard.bench.records.store import write_atomically
from fedguard.bench.results.compare import compare
from fedguard.bench.results.matrices import matrices
from fedguard.bench.results.run import Run
from fedguard.retired import RETIRED_CHECKS, RETIRED_FIELDS
from tests.root import ROOT

#: A run as the last commit of the first edition (43f24ad) wrote it, with another name of the machine and no folder of the suite.
OLD = ROOT / "tests" / "first_edition"

PATHS = sorted(OLD.glob("cells/*/*.json"))


@pytest.fixture
def old(tmp_path):
    return Run.open(shutil.copytree(OLD, tmp_path / "first_edition"))


def renamed(stored):
    """What is stored in schema 1, under the names of schema 2: by a plain walk of all of it."""
    if isinstance(stored, list):
        return [renamed(one) for one in stored]
    if not isinstance(stored, dict):
        return RETIRED_CHECKS.get(stored, stored) if isinstance(stored, str) else stored
    names = RETIRED_FIELDS | RETIRED_CHECKS
    return {names.get(key, key): one if key == "config" else renamed(one) for key, one in stored.items()}


def test_records_of_the_first_edition_are_read_whole(old):
    assert len(old.records) == len(PATHS) == 7 and not old.broken
    for path in PATHS:
        stored = json.loads(path.read_bytes())
        assert stored["schema"] == 1 and {"corners", "true_f", "told_f"} <= {*stored["result"], *stored["threat_card"]}
        as_today = {**renamed(stored), "schema": 2}
        as_today["threat_card"]["secure_aggregation"] = "none"
        assert from_text(path.read_bytes()) == as_today, "nothing is dropped or changed on the way, to the last bit"
    stored = json.loads((OLD / "manifest.json").read_text())
    assert stored["corners"] and old.manifest["controls"] == stored["corners"] and old.manifest["schema"] == 2


def test_both_schemas_may_stand_in_one_run(old):
    """A run of an earlier version that is resumed: what it adds is of schema 2, and nothing that is there is written again."""
    before = {path: path.read_bytes() for path in old.folder.path.glob("cells/*/*.json")}
    rows, record = old.rows(), next(iter(old.records.values()))
    old.folder.write({**record, "seed": 7})
    new = json.loads(old.folder.record_path(record["cell"], 7).read_text())
    assert new["schema"] == 2 and "corners" not in new["result"] and "told_f" not in new["threat_card"]
    manifest = {**old.manifest, "seeds": [*old.manifest["seeds"], 7]}
    old.folder.write_manifest(manifest, (OLD / "config.resolved.yaml").read_text())
    again = Run.open(old.folder.path)
    assert [row for row in again.rows() if row["seed"] != 7] == rows
    assert {**again.records[record["cell"], 7], "seed": record["seed"], "sha256": ""} == {**record, "sha256": ""}
    assert all(path.read_bytes() == text for path, text in before.items())


def test_records_of_the_first_edition_are_shown_linted_compared_and_reported(old):
    rows = {row["attack"]: row for row in old.rows()}
    assert rows["alie"]["final_accuracy"] is not None and rows["alie"]["harm"] is None, "it did not know harm"
    assert rows["loss"]["membership_tpr"] is not None and rows["loss"]["membership_tpr_01"] is None
    record = next(record for _, record in old.trials() if record["threat_card"]["attack"] == "alie")
    assert silent_mean(record["result"]) == record["result"]["references"]["oracle_mean"]
    assert [at for at, _ in curve(record, "accuracy")] == [1, 2, 3]
    console = Console(width=160)
    with console.capture() as capture:
        console.print(render_terminal(OVERVIEW.blocks(old, {})))
    said = " ".join(capture.get().split())
    assert "Kind data horizontal, model linear, privacy mechanism none, architecture centralized" in said
    assert "Before you quote this" in said
    assert any("members found at 1 % false alarms" in table.title for table in matrices(old))
    assert {finding.flag for finding in lint(results_of(old)).findings} >= {"class_lost"}
    assert all(one.paired.mean == 0 for one in compare(old, old).differences)
    assert b"accuracy lost under the attack" in render_report(old)


@pytest.mark.parametrize("form", FORMS)
def test_the_json_schema_is_sound_and_says_what_each_field_is(form):
    schema = json_schema(form)
    jsonschema.Draft202012Validator.check_schema(schema)
    kinds = {**schema["$defs"], form: schema}
    fields = [(name, key, said) for name, kind in kinds.items() for key, said in kind.get("properties", {}).items()]
    assert len(fields) > 10
    assert not [(name, key) for name, key, said in fields if not said.get("description")]


def test_the_json_schema_lets_through_what_is_stored_and_nothing_else():
    record, manifest = (jsonschema.Draft202012Validator(json_schema(form)) for form in ("record", "manifest"))
    manifest.validate(Run.open(OLD).manifest)
    for path in PATHS:
        stored = from_text(path.read_bytes())
        record.validate(stored)
        stored["result"]["final_accuracy"] = 1.5
        assert not record.is_valid(stored)


def test_a_record_lies_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    """A machine that loses its power between the two keeps the old one, whole."""
    path, seen = tmp_path / "0.json", []
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", lambda file: seen.append((path.read_bytes(), os.fstat(file).st_size)))
    write_atomically(path, b"newer")
    assert seen == [(b"old", len(b"newer"))]
    assert path.read_bytes() == b"newer"
    assert list(tmp_path.iterdir()) == [path]


def test_columns_of_a_curve_are_of_one_length(old):
    stored = json.loads(PATHS[0].read_text())
    stored["result"]["curve"]["accuracy"].pop()
    with pytest.raises(ValueError, match="as many rounds as values"):
        RECORD.validate_python(stored)


def test_every_field_of_a_type_is_named_in_its_docstring_once():
    """A name in a docstring that is no field has outlived it."""
    from fedguard.bench.docstrings import _meanings
    from fedguard.bench.records.schema import card, inference, manifest, record, result

    for module in (card, inference, manifest, record, result):
        for kind in vars(module).values():
            if getattr(kind, "__module__", "") == module.__name__ and hasattr(kind, "__required_keys__"):
                assert not set(_meanings(kind.__doc__ or "")) - set(get_type_hints(kind)), kind
