"""The page Privacy and what it reads: promises, who was recognised, pictures, and the audit beside the claims."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

import fedguard as fg
from fedguard.bench.audits.suites import load_audit, suite_digest
from fedguard.bench.results.disclosure import list_membership_targets, picture, promises, rebuilt, summarize_masking
from fedguard.bench.results.run import Run
from fedguard.commands.audit import audit
from fedguard.errors import StoreError

SUITE = {
    "name": "private",
    "task": {"data": "digits", "model": "softmax"},
    "clients": {"total": 5, "malicious": 1},
    "threat": {"knowledge": ["own_data", "model"]},
    "training": {"algorithm": "fedsgd", "rounds": 2, "batch_size": 8, "lr": 0.5},
    "observer": {"victims": 2},
    "seeds": 2,
    "matrix": {
        "protocol": [
            {"secure_aggregation": "none"},
            {"privacy": {"kind": "record", "clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "sample_rate": 0.1}},
            {"privacy": {"kind": "client", "clip": 1.0, "noise_multiplier": 2.0, "delta": 1e-3}},
            {
                "secure_aggregation": "full",
                "privacy": {"kind": "distributed", "clip": 1.0, "noise_multiplier": 2.0, "delta": 1e-3},
            },
        ],
        "attack": ["none", "ipm", "analytic", "loss"],
        "defense": ["mean"],
    },
}
PAGE = """
import os
from pathlib import Path
from fedguard.app.here import PageContext
from fedguard.app.views.privacy import show
show(PageContext(Path(os.environ["FEDGUARD_STORE"]), os.environ["RUN"], {}))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=2)


@pytest.fixture
def copy(run, tmp_path):
    """The same run, to be broken."""
    shutil.copytree(run.folder.path, tmp_path / "private")
    return Run.open("private", tmp_path)


def page(run, part, monkeypatch):
    monkeypatch.setenv("FEDGUARD_STORE", str(run.folder.path.parent))
    monkeypatch.setenv("RUN", run.name)
    test = AppTest.from_string(PAGE, default_timeout=60)
    test.session_state["privacy"] = part
    test.run()
    assert not test.exception
    return test


def pictures(test):
    """All pictures of a page, which must be described, and kept without loss."""
    found = [image for block in test.get("image") for image in block.proto.imgs]
    assert all(image.url.endswith(".png") and "Truth above" in image.alt for image in found)
    return found


def command(*arguments):
    app = typer.Typer()
    app.command()(audit)
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "400"})


def suite_file(folder):
    path = folder / "suite.yaml"
    path.write_text(json.dumps({"schema": 1, **SUITE}))
    return path


@pytest.fixture(scope="module")
def audited(run, tmp_path_factory):
    """The run with its audit stored."""
    folder = tmp_path_factory.mktemp("audited")
    shutil.copytree(run.folder.path, folder / "private")
    result = command(suite_file(folder), "--store", folder, "--canaries", 100)
    assert result.exit_code == 0, result.output
    assert f"Stored in {folder / 'private' / 'audit.json'}." in result.output
    return Run.open("private", folder)


def test_promises_are_those_of_the_records(run):
    found = {one.facts.get("kind"): one for one in promises(run)}
    assert set(found) == {None, "record", "client", "distributed"}
    assert found[None].epsilon is None
    assert "no noise" in found[None].words
    for kind in ("record", "client", "distributed"):
        recorded = [
            record["result"]["privacy"]["epsilon"]
            for record in run.records.values()
            if record["threat_card"]["attack"] != "dropout"  # silent malicious clients are no position of the matrix
            if record["status"] == "ok" and (record["result"]["privacy"] or {}).get("kind") == kind
        ]
        assert found[kind].epsilon == (min(recorded), max(recorded))
        assert found[kind].trials == 8
        assert f"delta = {'1e-05' if kind == 'record' else '0.001'}" in found[kind].words
    assert found["record"].unit == "record"
    assert found["distributed"].unit == "client (distributed)"


def test_who_gets_no_guarantee_is_told_why(tmp_path):
    noisy = {
        **SUITE,
        "clients": {"total": 8, "malicious": 1, "per_round": 0.5, "sampling": "poisson"},
        "seeds": 1,
        "matrix": {"protocol.privacy": [{"kind": "client", "noise_multiplier": 2.0}], "attack": ["none", "ipm"]},
    }
    bare, attacked = promises(fg.run(noisy, store=tmp_path, jobs=1))
    assert bare.epsilon is not None
    assert bare.attacks == ("none",)
    assert attacked.epsilon is None
    assert attacked.figure == "no guarantee"
    assert attacked.attacks == ("ipm",)
    assert attacked.words.startswith("No guarantee: the malicious clients know how many take part")


def test_every_epsilon_stands_on_the_page(run, monkeypatch):
    test = page(run, "What is proven", monkeypatch)
    assert [metric.value for metric in test.metric] == [one.figure for one in promises(run)]
    said = [text.value for text in test.text]
    assert all(one.words in said for one in promises(run))
    assert not test.markdown  # nothing from a run is read as Markdown


def test_the_costs_of_all_points_stand_in_a_table(run, monkeypatch):
    test = page(run, "What it costs", monkeypatch)
    table = test.dataframe[0].value
    assert len(table) == 4
    assert set(table["epsilon"]) > {"no guarantee"}
    assert all("too few seeds" in text for text in table["final accuracy"])
    assert any("one shape only" in caption.value for caption in test.caption)


def test_utility_alone_is_shown_over_epsilon_and_one_epsilon_names_the_command(tmp_path, monkeypatch):
    noises = ["none", {"kind": "record", "noise_multiplier": 1.0, "sample_rate": 0.1}]
    matrix = {"protocol.privacy": noises, "attack": ["none"]}
    plain = fg.run({**SUITE, "name": "plain", "seeds": 1, "matrix": matrix}, store=tmp_path, jobs=1)
    test = page(plain, "What it costs", monkeypatch)
    assert list(test.dataframe[0].value["defense"]) == ["mean", "mean"]
    assert "fedguard list inference" in [code.value for code in test.code]
    manifest = plain.folder.path / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "positions": content["positions"][:1]}))
    single = Run.open("plain", tmp_path)
    test = page(single, "What it costs", monkeypatch)
    assert [code.value.partition(" --store")[0] for code in test.code] == ["fedguard run examples/privacy_cost.yaml"]
    for part in ("Membership", "Gallery"):
        assert page(single, part, monkeypatch).code[0].value.startswith("fedguard run examples/")


def test_members_are_counted_and_rates_too_fine_are_unreportable(run, monkeypatch):
    test = page(run, "Membership", monkeypatch)
    targets = test.dataframe[1].value
    assert len(targets) == len(list_membership_targets(run)) == 8
    score = list_membership_targets(run)[0].score
    assert targets["members"][0] == score["members"]
    assert targets["non-members"][0] == score["non_members"]
    assert targets["found at 0.1 % false alarms"].str.startswith("unreportable: expected 1,000 non-members").all()
    over = test.dataframe[0].value
    assert len(over) == 4
    assert over.iloc[:, 2].str.contains("too few seeds").all()


def test_the_gallery_pages_and_filters(run, monkeypatch):
    assert len(rebuilt(run)) == 12  # masks leave one target, the sum; a trusted server's models one
    monkeypatch.setattr("fedguard.app.views.privacy.SHOWN", 5)
    test = page(run, "Gallery", monkeypatch)
    assert len(pictures(test)) == 5
    test.number_input[0].set_value(3).run()
    assert not test.exception
    assert len(pictures(test)) == 2
    test.selectbox[0].select("protocol = (secure_aggregation=none)").run()
    assert not test.exception
    assert len(pictures(test)) == 4
    shown = [text.value for text in test.text if text.value.startswith("PSNR")]
    score = rebuilt(run)[0].score
    assert shown[0].startswith(f"PSNR {score['psnr']['mean']:.3g} ")
    assert shown[0].endswith(f"{score['exact']} of {score['images']} exact, {score['revealed']} nearer than any guess")


def test_a_picture_holds_the_truth_above_and_the_claim_below(run):
    from PIL import Image

    one = rebuilt(run)[0]
    with np.load(one.arrays, allow_pickle=False) as arrays:
        truth, found = arrays["truth"], arrays["found"]
    drawn = np.asarray(Image.open(io.BytesIO(picture(one.arrays))))
    size, line = 64, 4  # 8 x 8 digits, each point 8 x 8 pixels
    for top, images in ((line, truth), (2 * line + size, found)):
        corner = drawn[top + 4 : top + size : 8, line + 4 : line + size : 8]
        low, high = truth.min(), truth.max()
        expected = np.clip((images[0, 0] - low) / (high - low), 0, 1) * 255
        assert np.abs(corner - expected).max() <= 0.51


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("/tmp/must-never-be-made",))


@pytest.mark.parametrize(
    "arrays",
    [
        {"truth": np.zeros((2, 1, 8, 8), np.float32)},
        {"truth": np.zeros((2, 1, 8, 8), np.float32), "found": np.zeros((3, 1, 8, 8), np.float32)},
        {"truth": np.zeros((2, 1, 8, 8)), "found": np.zeros((2, 1, 8, 8))},
        {"truth": np.full((2, 1, 8, 8), np.nan, np.float32), "found": np.zeros((2, 1, 8, 8), np.float32)},
        {"truth": np.zeros((65, 1, 2, 2), np.float32), "found": np.zeros((65, 1, 2, 2), np.float32)},
        {"truth": np.zeros((1, 3, 2000, 1500), np.float32), "found": np.zeros((1, 3, 2000, 1500), np.float32)},
        {"truth": np.array([Evil()], dtype=object), "found": np.array([Evil()], dtype=object)},
    ],
    ids=["one missing", "shapes", "dtype", "not finite", "too many", "too large", "pickled"],
)
def test_arrays_that_are_not_what_was_stored_are_told_and_not_shown(arrays, copy, monkeypatch):
    path = rebuilt(copy)[0].arrays
    np.savez_compressed(path, **arrays)
    with pytest.raises(StoreError, match="It is not shown"):
        picture(path)
    test = page(copy, "Gallery", monkeypatch)
    assert [warning.value for warning in test.warning] == ["Its arrays cannot be shown."]
    assert not Path("/tmp/must-never-be-made").exists()


def test_arrays_that_are_no_archive_or_missing_are_told(copy, monkeypatch):
    first, second, *_ = (one.arrays for one in rebuilt(copy))
    first.write_bytes(b"no archive")
    test = page(copy, "Gallery", monkeypatch)
    assert "Its arrays cannot be shown." in [warning.value for warning in test.warning]
    second.unlink()  # now nobody knows which of the two targets the other file is of
    assert [one.arrays for one in rebuilt(copy)[:2]] == [None, None]
    assert any("cannot be told" in info.value for info in page(copy, "Gallery", monkeypatch).info)


def test_an_audit_is_stored_with_its_run_and_read_back(audited):
    stored = load_audit(audited.folder)
    assert stored.method == "gdp_split"
    assert stored.suite == suite_digest(position["cell"] for position in audited.manifest["positions"])
    assert {one.audit.subject for one in stored.audits} == {
        "record-level DP-SGD",
        "client-level noise at the server",
        "distributed noise, skellam",
    }
    for one in stored.audits:
        assert len(one.cells) == 4
        assert one.audit.verdict == "consistent"
        assert one.audit.checks
        assert all(check.passed for check in one.audit.checks)
    assert "other configuration" not in " ".join(stored.doubts(audited))


def test_the_page_shows_bound_beside_claim_and_every_check(audited, monkeypatch):
    test = page(audited, "Audits", monkeypatch)
    stored = load_audit(audited.folder)
    said = [text.value for text in test.text]
    for number, one in enumerate(stored.audits):
        assert one.audit.words in said
        line = f"Bound {one.audit.bound.epsilon:.4g} (95.25 % confidence, 200 canaries) beside claim {one.audit.claimed:.4g}."
        assert line in said
        checks = test.dataframe[number].value
        assert list(checks["p-value"]) == [check.p_value for check in one.audit.checks]


def test_an_audit_of_another_configuration_or_of_other_code_is_doubted(audited, tmp_path, monkeypatch):
    shutil.copytree(audited.folder.path, tmp_path / "private")
    result = command(suite_file(tmp_path), "--store", tmp_path, "--canaries", 20, "--set", "training.rounds=3")
    assert "of another configuration" in result.output
    test = page(Run.open("private", tmp_path), "Audits", monkeypatch)
    assert any("another configuration" in warning.value for warning in test.warning)
    for record in (tmp_path / "private").glob("cells/*/*.json"):
        record.unlink()
    assert not any("other code" in doubt for doubt in load_audit(audited.folder).doubts(Run.open("private", tmp_path)))


def test_without_its_run_or_without_noise_nothing_is_stored(tmp_path):
    file = suite_file(tmp_path)
    result = command(
        file, "--store", tmp_path, "--canaries", 20, "--set", "matrix.protocol=[{secure_aggregation: none}]"
    )
    assert "Nothing is stored." in result.output
    client = json.dumps(SUITE["matrix"]["protocol"][2])
    result = command(
        file, "--store", tmp_path, "--canaries", 20, "--set", f"matrix.protocol=[{client}]", "--name", "other"
    )
    assert f"Not stored, for there is no run {tmp_path / 'other'}" in result.output
    assert not list(tmp_path.rglob("audit.json"))


def test_json_stays_json_where_an_audit_is_stored(copy):
    folder = copy.folder.path.parent
    result = command(suite_file(folder), "--store", folder, "--canaries", 20, "--json")
    assert len(json.loads(result.stdout)) == 3
    assert "Stored in" in result.stderr


def test_a_run_that_was_not_audited_names_the_command(run, monkeypatch):
    assert load_audit(run.folder) is None
    said = page(run, "Audits", monkeypatch).code[0].value
    assert said.startswith("fedguard audit ")
    assert said.endswith("--name private")


@pytest.mark.parametrize("broken", ["{", "[]", '{"schema": 1}', "changed", "renamed"])
def test_a_broken_audit_is_one_line_and_no_crash(broken, audited, tmp_path):
    shutil.copytree(audited.folder.path, tmp_path / "private")
    run = Run.open("private", tmp_path)
    path = run.folder.path / "audit.json"
    text = path.read_text()
    content = {"changed": text.replace("consistent", "consistant", 1)}.get(broken, broken)
    if broken == "renamed":
        from fedguard.bench.records.record import to_text

        inner = json.loads(text)
        inner["audits"][0]["verdict"] = "splendid"
        content = to_text(inner).decode()
    path.write_text(content)
    with pytest.raises(StoreError, match="cannot be read") as raised:
        load_audit(run.folder)
    assert "\n" not in str(raised.value)


def test_who_was_hidden_is_that_of_the_records(run):
    (found,) = summarize_masking(run)
    positions = {position["cell"] for position in run.manifest["positions"]}
    sums = [
        record["result"]["secure_aggregation"]
        for (cell, _), record in run.records.items()
        if cell in positions and record["status"] == "ok" and record["result"]["secure_aggregation"]
    ]
    assert found.mode == "full"
    assert found.anonymity == min(one["anonymity"] for one in sums)
    assert found.sessions == sum(one["sessions"] for one in sums) == 8 * 2
    assert found.aborted == 0
    assert found.error.mean == pytest.approx(sum(one["error"]["mean"] for one in sums) / len(sums))
    assert found.error.seeds == 2
