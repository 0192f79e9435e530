"""A verdict that was tampered with is found: by its seal, its file, its records, its figures, or a trial that is repeated."""

from __future__ import annotations

import json
import shutil

import pytest

from fedguard.bench.acceptance.accept import accept
from fedguard.bench.acceptance.findings import seal_of
from fedguard.bench.acceptance.trainings import digest_records
from fedguard.bench.acceptance.verify import verify
from fedguard.bench.records.record import to_text
from fedguard.bench.records.store import RunFolder
from fedguard.errors import ConfigError, StoreError
from tests.acceptance.submissions import HONEST
from tests.acceptance.test_accept import SMALL
from tests.forked import fedguard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a rule, a standard of seconds, and the verdict on the rule."""
    folder = tmp_path_factory.mktemp("verdict")
    (folder / "small.yaml").write_text(SMALL)
    (folder / "submitted_whole.py").write_text(HONEST["upper median"])
    found = accept(folder / "submitted_whole.py", folder=folder / "made", standard=str(folder / "small.yaml"), jobs=1)
    assert len(found.cells) == 1 and set(found.missing) == {"nowhere"}
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def verified(folder, trials: int = 1, nonce: int | None = 5):
    return verify(
        str(folder / "submitted_whole.py"), folder / "made", str(folder / "small.yaml"), trials=trials, nonce=nonce
    )


def codes(found) -> list[str]:
    return [one.code for one in found.findings]


def change(folder, name: str, reseal: bool, **values) -> None:
    """Change a record's result; a doctored record that is sealed again looks whole."""
    run, _, cell, _ = name.split("/")
    path = folder / "made" / "runs" / name
    record = RunFolder(folder / "made" / "runs" / run).read(cell, json.loads(path.read_text())["seed"])
    record["result"].update(values)
    path.write_bytes(to_text(record))
    if reseal:
        verdict = json.loads((folder / "made" / "verdict.json").read_text())
        verdict["records"] = digest_records(folder / "made" / "runs")
        rewrite(folder, **verdict)


def rewrite(folder, **verdict) -> None:
    verdict["seal"] = seal_of(verdict)
    (folder / "made" / "verdict.json").write_text(json.dumps(verdict))


def records(folder) -> list[str]:
    return list(json.loads((folder / "made" / "verdict.json").read_text())["records"])


def test_an_untouched_verdict_verifies_and_every_trial_repeats_to_the_last_bit(whole):
    found = verified(whole, trials=1000)
    assert codes(found) == [] and found.trials == found.records == len(records(whole)) > 20 and found.exit_code == 0


def test_the_nonce_decides_which_trials_are_repeated(whole):
    assert verified(whole, nonce=None).nonce != verified(whole, nonce=None).nonce
    assert verified(whole, nonce=3).as_dict() == verified(whole, nonce=3).as_dict()


def test_an_edited_verdict_breaks_its_seal_and_one_that_is_sealed_again_its_figures(copy):
    verdict = json.loads((copy / "made" / "verdict.json").read_text())
    verdict["cells"][0]["worst"]["mean"] += 0.05
    (copy / "made" / "verdict.json").write_text(json.dumps(verdict))
    assert codes(verified(copy)) == ["verdict_edited", "metrics_differ"]
    rewrite(copy, **verdict)
    assert codes(verified(copy)) == ["metrics_differ"]


def test_a_changed_file_a_missing_record_and_an_edited_one_are_named(copy):
    with (copy / "submitted_whole.py").open("a") as file:
        file.write("# later\n")
    kept = records(copy)
    (copy / "made" / "runs" / kept[-1]).unlink()
    change(copy, next(one for one in kept if one.startswith("smoke-honest")), False, final_accuracy=0.99)
    found = codes(verified(copy))
    assert {"file_changed", "record_missing", "record_edited", "metrics_differ"} <= set(found), found


def test_records_that_were_doctored_and_sealed_are_found_by_repeating_trials(copy):
    for name in [one for one in records(copy) if one.startswith("smoke/")]:
        change(copy, name, True, best_accuracy=0.999)
    found = verified(copy, trials=3)
    assert codes(found) == ["differs"] * 3 or codes(found).count("differs") >= 2, found


def test_a_verdict_of_another_standard_or_a_hostile_one_is_one_line(copy):
    with pytest.raises(ConfigError, match="expected a verdict by the standard 2026"):
        verify(str(copy / "submitted_whole.py"), copy / "made")
    verdict = json.loads((copy / "made" / "verdict.json").read_text())
    hostile = {**verdict, "records": {"../../etc/passwd": "0"}}
    for text in ("{", "[]", "{}", json.dumps(hostile), json.dumps({**verdict, "cells": 3})):
        (copy / "made" / "verdict.json").write_text(text)
        with pytest.raises(StoreError, match="expected the verdict that accept wrote") as caught:
            verified(copy)
        assert "\n" not in str(caught.value)
    with pytest.raises(StoreError):
        verify(str(copy / "submitted_whole.py"), copy / "nowhere", str(copy / "small.yaml"))


def test_the_command_verifies(whole):
    arguments = (
        "accept",
        "submitted_whole.py",
        "--standard",
        "small.yaml",
        "--to",
        "made",
        "--verify",
        "--trials",
        "2",
    )
    found = fedguard(*arguments, cwd=whole)
    assert found.returncode == 0 and "2 of 2 repeated trials are equal to the last bit" in found.stdout, found.stderr
