"""The page on privacy as a list of blocks, and what it reads: claims, membership, pictures, and the audit beside the claims."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import fedguard as fg
from fedguard.bench.audits.suites import load_audit, suite_digest
from fedguard.bench.pages import protections
from fedguard.bench.pages.blocks import Chart, Choice, More, Pictures, Prose, TableBlock, Verdict
from fedguard.bench.pages.privacy import PRIVACY
from fedguard.bench.pages.privacy_chart import roc
from fedguard.bench.results.disclosure import (
    MembershipResult,
    TrialPosition,
    list_membership_targets,
    picture,
    promises,
    rebuilt,
    summarize_masking,
)
from fedguard.bench.results.run import Run
from fedguard.commands.audit import audit
from fedguard.errors import StoreError
from fedguard.metrics.membership import membership
from fedguard.rng import Rng

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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run(SUITE, store=tmp_path_factory.mktemp("store"), jobs=2)


@pytest.fixture
def copy(run, tmp_path):
    """The same run, to be broken."""
    shutil.copytree(run.folder.path, tmp_path / "private")
    return Run.open("private", tmp_path)


def page(run: Run, **address: str) -> list:
    return list(PRIVACY.blocks(run, address))


def of_type(blocks: list, kind: type) -> list:
    """The blocks of a type, those on demand included."""
    inside = [one for block in blocks if isinstance(block, More) for one in block.blocks]
    return [one for one in [*blocks, *inside] if isinstance(one, kind)]


def rows_of(run: Run, **address: str) -> dict:
    """The rows of the ladder by name."""
    (drawn, *_) = of_type(page(run, **address), Chart)
    return {row["name"]: row for row in drawn.spec["data"]["values"]}


def said(blocks: list) -> str:
    return str([one for one in blocks if not isinstance(one, Chart | Pictures)])


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


def test_every_epsilon_is_stated_with_its_unit_and_its_words(run):
    (table,) = [one for one in of_type(page(run), TableBlock) if one.columns[1].name == "ε, exactly"]
    found = promises(run)
    assert [row[3] for row in table.rows] == [one.words for one in found]
    assert [row[2] for row in table.rows] == [one.unit or "nothing" for one in found]
    for row, one in zip(table.rows, found, strict=True):
        assert row[1] == ("no guarantee" if one.epsilon is None else f"{one.epsilon[1]:.7g}")


def test_the_order_of_blocks_and_the_ladder_from_none_to_distributed(run):
    blocks = page(run)
    assert [type(one) for one in blocks[:4]] == [Verdict, Chart, Prose, Pictures]
    assert all(type(one) is More for one in blocks[4:])
    assert list(rows_of(run)) == ["no protection", "record-level DP", "client-level DP", "distributed DP"]
    assert [chip.text for chip in blocks[0].chips][-1] == "2 seeds: no intervals over seeds"
    assert blocks[0].actions[0].command.endswith("--name private"), "the audit's command"


def test_the_ladder_has_the_values_of_the_records(run):
    rows = rows_of(run)
    kinds = {"record-level DP": "record", "client-level DP": "client", "distributed DP": "distributed"}
    for name, row in rows.items():
        ours = [
            record
            for swept, record in run.trials()
            if ((record["result"]["privacy"] or {}).get("kind")) == kinds.get(name)
        ]
        epsilons = [record["result"]["privacy"]["epsilon"] for record in ours if record["result"]["privacy"]]
        assert row.get("claim") == max(epsilons, default=None)
        scores = [
            one
            for record in ours
            if record["threat_card"]["attack"] == "analytic"
            for one in record["result"]["inference"]["targets"]
        ]
        counts = sum(one["revealed"] for one in scores), sum(one["images"] for one in scores)
        assert row["curious_label"].endswith(f"({counts[0]} of {counts[1]})")
        assert row["curious"] == pytest.approx(100 * counts[0] / counts[1])
        for key, attack in (("clean", None), ("worst", "ipm")):
            values = [r["result"]["final_accuracy"] for r in ours if r["threat_card"]["attack"] == attack]
            assert row[key] == pytest.approx(100 * sum(values) / 2)
        aucs = {}
        for record in ours:
            if record["threat_card"]["attack"] == "loss":
                aucs[record["seed"]] = record["result"]["inference"]["score"]["auc"]
        if aucs:
            assert row["auc"] == pytest.approx(sum(aucs.values()) / 2)
            assert (row["auc_low"], row["auc_high"]) == pytest.approx((min(aucs.values()), max(aucs.values())))
    assert "malicious" not in str(rows), "this run has no attack of a malicious server"


def test_every_panel_has_all_rows_so_that_panels_beside_each_other_agree(run):
    (drawn, *_) = of_type(page(run), Chart)
    for panels in (drawn.spec["hconcat"], drawn.narrow["vconcat"]):
        for panel in panels:
            domains = [
                layer["encoding"]["y"]["scale"]["domain"] for layer in panel["layer"] if "y" in layer["encoding"]
            ]
            assert domains and all(one == list(rows_of(run)) for one in domains)
    assert all(panel["width"] <= 358 for panel in drawn.narrow["vconcat"])


def test_the_epsilon_is_shown_as_the_suite_asked_for_it_and_never_smaller_than_it_is():
    records = [{"config": {"protocol": {"privacy": {"epsilon": 10.0}}}}]
    assert protections._epsilon_of_suite(records, 9.999) == 10
    assert protections._epsilon_of_suite(records, 10.5) is None and protections._epsilon_of_suite(records, 8.0) is None
    assert protections._epsilon_of_suite([{"config": {"protocol": {"privacy": "none"}}}], 9.999) is None


def test_the_verdict_states_what_a_server_rebuilds_and_what_noise_costs(run):
    verdict = page(run)[0]
    rows = rows_of(run)
    share = rows["no protection"]["curious"]
    assert verdict.headline.startswith(f"Without protection a server rebuilds {share:.1f} % of the inputs")
    assert f"{rows['no protection']['clean']:.1f} % without noise, " in verdict.lead[-1]
    assert f"{rows['record-level DP']['clean']:.1f} % with record-level DP" in verdict.lead[-1]


def test_a_leak_counts_only_attacks_whose_seeds_all_ran(copy):
    (lost, *_) = [
        path
        for path in copy.folder.path.glob("cells/*/*.json")
        if '"analytic' in path.read_text() and '"privacy":null' in path.read_text().replace(" ", "")
    ]
    lost.unlink()
    row = rows_of(Run.open("private", copy.folder.path.parent))["no protection"]
    assert row["curious_label"] == "missing" and "curious" not in row


def test_the_costs_of_all_points_stand_in_a_table(run):
    (table,) = [one for one in of_type(page(run), TableBlock) if "Each is the worst" in one.caption]
    assert len(table.rows) == 4 and {row[2] for row in table.rows} > {"none"}
    assert "no interval" in table.caption and not any("[" in cell for row in table.rows for cell in row)


def test_utility_alone_and_a_run_that_asks_nothing(tmp_path):
    noises = ["none", {"kind": "record", "noise_multiplier": 1.0, "sample_rate": 0.1}]
    matrix = {"protocol.privacy": noises, "attack": ["none"]}
    plain = fg.run({**SUITE, "name": "plain", "seeds": 1, "matrix": matrix}, store=tmp_path, jobs=1)
    blocks = page(plain)
    assert blocks[0].headline.startswith("This run claims ε = ") and "no attack of it tests" in blocks[0].headline
    assert set(rows_of(plain)) == {"no protection", "record-level DP"} and not of_type(blocks, Pictures)
    assert "auc" not in str(rows_of(plain)) and "curious" not in str(rows_of(plain))
    bare = replace(plain, manifest={**plain.manifest, "positions": plain.manifest["positions"][:1]})
    (verdict,) = page(bare)
    assert verdict.headline == "This run asks nothing about privacy"
    assert [one.command for one in verdict.actions] == [
        "fedguard run examples/privacy.yaml",
        "fedguard run examples/privacy_cost.yaml",
    ]


def test_several_defenses_are_a_choice_and_so_are_other_swept_keys(tmp_path):
    matrix = {"clients.malicious": [1, 2], "attack": ["none", "loss"], "defense": ["mean", "median"]}
    run = fg.run({**SUITE, "seeds": 1, "matrix": matrix}, store=tmp_path, jobs=1)
    choices = {one.key: one for one in of_type(page(run), Choice)}
    assert choices["setting"].options == ["clients.malicious = 1", "clients.malicious = 2"]
    assert choices["defense"].options == ["mean", "median"]
    first, second = (rows_of(run, defense=name)["no protection"]["clean"] for name in ("mean", "median"))
    values = {
        record["threat_card"]["defense"]: record["result"]["final_accuracy"]
        for swept, record in run.trials()
        if swept["attack"] == "none" and swept["clients.malicious"] == "1"
    }
    assert (first, second) == pytest.approx((100 * values["mean"], 100 * values["median"]))
    assert of_type(page(run, setting="no such", defense="<b>"), Choice)[1].chosen == "mean"


def test_members_are_counted_and_rates_too_fine_are_unreportable(run):
    tables = of_type(page(run), TableBlock)
    (targets,) = [one for one in tables if one.caption.startswith("Each target")]
    assert len(targets.rows) == len(list_membership_targets(run)) == 8
    score = list_membership_targets(run)[0].score
    assert targets.rows[0][5:7] == [f"{score[key]:,}" for key in ("members", "non_members")]
    assert all(row[9].startswith("unreportable: expected 1,000 non-members") for row in targets.rows)
    (over,) = [one for one in tables if one.caption.startswith("Membership inference")]
    assert len(over.rows) == 4 and "no interval" in over.caption


def test_a_picture_for_each_protection_and_a_row_for_each_target(run):
    assert len(rebuilt(run)) == 12  # masks leave one target, the sum; a trusted server's models one
    (drawn,) = of_type(page(run), Pictures)
    assert [one.caption.partition(",")[0] for one in drawn.images] == list(rows_of(run))
    assert all("Above, inputs; below, what was rebuilt" in one.alt for one in drawn.images)
    (table,) = [one for one in of_type(page(run), TableBlock) if one.columns[-1].name == "scores"]
    assert len(table.rows) == 12
    score = rebuilt(run)[0].score
    assert table.rows[0][-1].startswith(f"PSNR {score['psnr']['mean']:.3g} ")
    assert table.rows[0][-1].endswith(
        f"{score['exact']} of {score['images']} exact, {score['revealed']} nearer than any guess"
    )


def test_pictures_stay_within_their_bytes(run, monkeypatch):
    monkeypatch.setattr("fedguard.bench.pages.privacy.ROOM", 3000)
    (drawn,) = of_type(page(run), Pictures)
    assert sum(len(one.png) for one in drawn.images) <= 3000
    assert "the page would become too large" in said(page(run))


def test_a_picture_holds_the_truth_above_and_the_claim_below(run):
    from PIL import Image

    one = rebuilt(run)[0]
    with np.load(one.arrays, allow_pickle=False) as arrays:
        truth, found = arrays["truth"], arrays["found"]
    drawn = np.asarray(Image.open(io.BytesIO(picture(one.arrays, 8))))
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
def test_arrays_that_are_not_what_was_stored_are_told_and_not_shown(arrays, copy):
    path = rebuilt(copy)[0].arrays
    np.savez_compressed(path, **arrays)
    with pytest.raises(StoreError, match="It is not shown"):
        picture(path, 8)
    assert "It is not shown" in said(page(copy))
    assert not Path("/tmp/must-never-be-made").exists()


def test_arrays_that_are_no_archive_or_missing_are_told(copy):
    first, second, *_ = (one.arrays for one in rebuilt(copy))
    first.write_bytes(b"no archive")
    assert "cannot be read" in said(page(copy))
    second.unlink()  # now nobody knows which of the two targets the other file is of
    assert [one.arrays for one in rebuilt(copy)[:2]] == [None, None]
    assert page(copy)


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


def test_the_page_shows_bound_beside_claim_and_every_check(audited):
    stored = load_audit(audited.folder)
    tables = of_type(page(audited), TableBlock)
    (table,) = [one for one in tables if one.caption == "Audited beside claimed"]
    for row, one in zip(table.rows, stored.audits, strict=True):
        assert (
            row[2].startswith(f"{one.audit.bound.epsilon:.4g} (95.25 % confidence, assuming ")
            and row[3] == f"{one.audit.claimed:.4g}"
        )
        assert (row[1], row[4], row[5]) == (one.audit.verdict, "200", one.audit.words)
    (checks,) = [one for one in tables if one.caption.startswith("Every check")]
    assert len(checks.rows) == sum(len(one.audit.checks) for one in stored.audits)
    rows = rows_of(audited)
    for name, subject in (
        ("record-level DP", "record-level"),
        ("client-level DP", "client-level"),
        ("distributed DP", "distributed"),
    ):
        (one,) = [one for one in stored.audits if one.audit.subject.startswith(subject)]
        assert rows[name]["found"] == one.audit.bound.epsilon and not rows[name]["refuted"]
        assert f"≥ {one.audit.bound.epsilon:.3g} found" in rows[name]["found_label"]
    assert "The audit refutes none of 3 claims, which proves none." in page(audited)[0].lead


def test_a_refuted_claim_is_said_first_and_an_unbounded_one_is_drawn(audited, monkeypatch):
    stored = load_audit(audited.folder)
    first, second, third = stored.audits
    bad = replace(
        first, audit=replace(first.audit, verdict="violated", bound=replace(first.audit.bound, epsilon=math.inf))
    )
    monkeypatch.setattr(
        "fedguard.bench.pages.privacy.load_audit", lambda folder: replace(stored, audits=(bad, second, third))
    )
    assert f"The audit refutes 1 of 3 claims: {first.audit.subject}." in page(audited)[0].lead
    (row,) = [row for row in rows_of(audited).values() if row.get("refuted")]
    assert row["found_label"].startswith("≥ ∞ found") and row["found_label"].endswith("refuted") and "found" not in row


def test_an_audit_of_another_configuration_or_of_other_code_is_doubted(audited, tmp_path):
    shutil.copytree(audited.folder.path, tmp_path / "private")
    result = command(suite_file(tmp_path), "--store", tmp_path, "--canaries", 20, "--set", "training.rounds=3")
    assert "of another configuration" in result.output
    assert "another configuration" in said(page(Run.open("private", tmp_path)))
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


def test_a_run_that_was_not_audited_names_the_command(run):
    assert load_audit(run.folder) is None
    (action,) = page(run)[0].actions
    assert action.command.startswith("fedguard audit ") and action.command.endswith("--name private")
    assert all(row.get("found_label", "not audited") == "not audited" for row in rows_of(run).values())


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
    blocks = page(run)
    assert "The stored audit cannot be read." in blocks[0].lead and "cannot be read" in said(blocks[1:])


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


PLACE = TrialPosition(setting="noise = none", attack="loss", defense="mean", seed=0)


def drawn_by(chart):
    """The rows of all panels, each with its attack."""
    return [{"attack": panel["title"], **row} for panel in chart.spec["concat"] for row in panel["data"]["values"]]


def gaussian(shift, seed, size=4000, target=0):
    """Members score N(shift, 1), others N(0, 1)."""
    draw = Rng(seed).child("scores", target).numpy()
    scores = torch.tensor([*(shift + draw.standard_normal(size)), *draw.standard_normal(size)])
    truth = torch.arange(2 * size) < size
    return MembershipResult(place=replace(PLACE, seed=seed), target=target, score=membership(scores, truth))


def test_the_mean_curve_is_that_of_two_gaussians():
    """TPR = Phi(shift - z) at FPR = 1 - Phi(z)."""
    shift, normal = 1.5, NormalDist()
    rows = drawn_by(
        roc([("none", gaussian(shift, seed, target=target)) for seed in range(3) for target in range(2)], "")
    )
    mean = [row for row in rows if row["kind"] == "mean"]
    assert mean[0]["false"] == pytest.approx(1 / 4000)
    assert mean[-1]["false"] == pytest.approx(1)
    assert mean[-1]["true"] == 1
    for row in mean[8:-1]:  # where at least a few false positives were to be seen
        expected = normal.cdf(shift + normal.inv_cdf(row["false"]))
        assert row["true"] == pytest.approx(expected, abs=0.06)
        assert row["low"] <= row["true"] <= row["high"]


def test_the_mean_is_over_targets_and_then_over_seeds():
    curves = {0: [[[0, 0], [0.1, 0.2], [1, 1]], [[0, 0], [0.1, 0.6], [1, 1]]], 1: [[[0, 0.1], [0.1, 0.3], [1, 1]]]}
    curves[2] = [[[0, 0], [0.1, 0.35], [1, 1]]]
    targets = [
        MembershipResult(place=replace(PLACE, seed=seed), target=number, score={"roc": curve})
        for seed, its in curves.items()
        for number, curve in enumerate(its)
    ]
    rows = [row for row in drawn_by(roc([("none", one) for one in targets], "")) if row["kind"] == "mean"]
    assert rows[0]["false"] == pytest.approx(0.1)
    for row in rows:  # between recorded points as a coin between their thresholds does
        way = (row["false"] - 0.1) / 0.9
        first, second, other, third = (start + way * (1 - start) for start in (0.2, 0.6, 0.3, 0.35))
        assert row["true"] == pytest.approx(((first + second) / 2 + other + third) / 3)
    half = 4.302652729911275 * 0.05 / math.sqrt(3) / (0.35 * 0.65)  # of 0.4, 0.3 and 0.35, on the logit scale
    assert rows[0]["high"] == pytest.approx(1 / (1 + math.exp(-(math.log(0.35 / 0.65) + half))))
    assert 0 < rows[0]["low"] < rows[0]["true"]


def test_one_seed_has_no_band_and_each_attack_a_panel_with_its_diagonal():
    other = replace(gaussian(1.0, 0), place=replace(PLACE, attack="lira"))
    rows = drawn_by(roc([("none", gaussian(1.0, 0)), ("none", other)], ""))
    assert all("too few seeds" in row["said"] for row in rows if row["kind"] == "mean")
    chance = {(row["attack"], row["false"]): row["true"] for row in rows if row["kind"] == "chance"}
    assert len(chance) == 4
    assert all(false == true for (_, false), true in chance.items())


def test_scores_that_find_nobody_can_be_drawn():
    score = {"roc": [[0, 0.0], [1, 0.0]]}
    assert drawn_by(roc([("none", MembershipResult(place=PLACE, target=0, score=score))], ""))
