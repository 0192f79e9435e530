"""Noise from the operating system: no seed leads to it, records say that nothing repeats, and the rest of a trial is as ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fedguard as fg
from fedguard import cli
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.contracts import Participation
from fedguard.contracts.cell import honest_plan
from fedguard.rng import Rng
from fedguard.tasks import cohort
from tests.privacy.test_noise_of_cells import NOISY, SAMPLED, alike, private
from tests.systems.scenes import cell

SUITE: dict[str, Any] = {
    "name": "published",
    "task": {"data": "digits", "model": "softmax", "partition": "iid"},
    "clients": {"total": 6},
    "training": {"rounds": 2, "lr": 0.1, "local_steps": 1, "batch_size": 16},
    "seeds": 1,
    "matrix": {
        "attack": ["none"],
        "protocol.privacy": ["none", {"kind": "client", "clip": 0.05, "epsilon": 2.0, "delta": 1e-3}],
    },
}


def trained(monkeypatch: pytest.MonkeyPatch, made: Any, secret: bool) -> Any:
    """What a training moved the model by, and by kind what was drawn on the way."""
    drawn: dict[str, list[Any]] = {"batches": [], "clients": []}
    task = Workbench().task(made, 0)
    setup = set_up(made, 0, task, secret_noise=secret)
    with monkeypatch.context() as patch:
        scheduled, choose = cohort.schedule, Participation.choose
        patch.setattr(cohort, "schedule", lambda *a: drawn["batches"].append((one := scheduled(*a)).tolist()) or one)
        patch.setattr(Participation, "choose", lambda *a: drawn["clients"].append(one := choose(*a)) or one)
        last = list(made.architecture.run(setup))[-1].model
    return setup, last - setup.task.initial_model(setup.rng.child("model")), drawn


@pytest.mark.parametrize("kind", NOISY)
def test_no_two_trainings_share_noise_nor_a_sampling_that_an_epsilon_counts_on(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture, changes = NOISY[kind]
    made = cell(architecture, **changes)
    seeded = trained(monkeypatch, made, False)
    ones, others = (trained(monkeypatch, made, True) for _ in range(2))
    for setup, moved, drawn in (others, seeded):
        assert torch.equal(setup.task.examples(3).x, ones[0].task.examples(3).x)
        assert abs(alike(moved, ones[1])) < 0.5
        if made.noise.unit != "client" or made.clients.scheme not in ("poisson", "fixed"):  # the same take part
            assert (drawn["batches"] == ones[2]["batches"]) == (made.noise.unit != "record")
            assert drawn["clients"] == ones[2]["clients"]


def test_who_takes_part_is_secret_where_an_epsilon_counts_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = {"kind": "client", "clip": 0.05, "noise_multiplier": 2.0, "delta": 1e-3}
    many = {**SAMPLED, "total": 40, "per_round": 10}
    made = cell("server", **private(noise, clients=many, training={"rounds": 4, "local_steps": 1}))
    ones, others = (trained(monkeypatch, made, True)[2]["clients"] for _ in range(2))
    assert len(ones) == 4 and ones != others
    plain = cell("server", **private({"kind": "none"}, clients=many, training={"rounds": 4, "local_steps": 1}))
    ones, others = (trained(monkeypatch, plain, True)[2]["clients"] for _ in range(2))
    assert ones == others


def test_who_measures_an_attack_knows_which_examples_were_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth that a claim of membership is held against is of the batches that were drawn, which no seed tells."""
    made = cell(
        "server", **private(NOISY["DP-SGD"][1]["protocol"]["privacy"], training={"rounds": 1, "local_steps": 2})
    )
    setup, _, drawn = trained(monkeypatch, made, True)
    clients = setup.choose_clients(1)
    for client, batches in zip(clients, drawn["batches"], strict=True):
        rows = list(dict.fromkeys(row for batch in batches for row in batch if row >= 0))
        used = setup.task.examples_used(client, honest_plan(setup), setup.rng.child("round", 1))
        assert torch.equal(used.x, setup.task.examples(client).x[rows])


def test_a_stranger_with_the_record_draws_a_seed_s_noise_again_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the threat card says of a simulation that is published: one round, so that the model is sum and noise alone."""
    noise = {"kind": "client", "clip": 0.05, "noise_multiplier": 2.0, "delta": 1e-3}
    made = cell("server", **private(noise, clients={}, training={"rounds": 1, "local_steps": 1}))
    silent = trained(
        monkeypatch, cell("server", **private(noise, clients={}, training={"rounds": 1, "lr": 1e-9})), False
    )
    for secret in (False, True):
        _, moved, _ = trained(monkeypatch, made, secret)
        stream = Rng(0).child("cell", made.id).child("privacy", 1).child("noise")
        recomputed = 2.0 * 0.05 / 6 * torch.randn(len(moved), generator=stream.torch())
        left = float((moved - recomputed).norm())
        assert (left <= 0.05) != secret  # the mean of six updates of at most 0.05, or as much noise again
    assert silent[1].norm() > 0.3


def written(run: Any) -> dict[str, Any]:
    return {record["threat_card"]["privacy"]: record for record in run.records.values()}


def test_a_run_says_where_its_noise_is_from_and_goes_on_as_it_was_begun(tmp_path: Any) -> None:
    seeded = fg.run(SUITE, store=tmp_path, jobs=1)
    plain, noisy = written(seeded)["none"], written(seeded)["client"]
    assert (plain["threat_card"]["noise_from"], noisy["threat_card"]["noise_from"]) == (None, "seed")
    assert noisy["threat_card"]["reproducible"] and "no privacy left" in noisy["threat_card"]["noise_note"]
    assert "no privacy left" in noisy["result"]["privacy"]["assumptions"][0]
    invoked = CliRunner().invoke(cli.app, ["lint", "published", "--store", str(tmp_path)])
    assert "noise_from_seed" in invoked.output and "1 records claim" in invoked.output
    into = ["--to", str(tmp_path / "rows.csv"), "--force"]
    invoked = CliRunner().invoke(cli.app, ["export", "published", "--store", str(tmp_path), *into])
    assert invoked.exit_code == 0 and "noise_from_seed: 1 records claim a finite epsilon" in invoked.output

    file = tmp_path / "suite.json"
    file.write_text(json.dumps(SUITE))
    invoked = CliRunner().invoke(cli.app, ["run", str(file), "--secret-noise", "--store", str(tmp_path), "--jobs", "1"])
    assert invoked.exit_code == 0 and "1 stored trials drew noise for privacy from their seeds" in invoked.output
    secret = fg.open_run("published", tmp_path)
    assert written(secret)["none"] == plain, "what has no noise is not run again"
    again = written(secret)["client"]
    assert again["threat_card"]["noise_from"] == "operating system" and not again["threat_card"]["reproducible"]
    assert "not reproducible" in again["threat_card"]["noise_note"]
    assert "not reproducible" in again["result"]["privacy"]["assumptions"][0]
    assert again["result"]["privacy"]["epsilon"] == noisy["result"]["privacy"]["epsilon"]
    assert (
        again["result"]["final_accuracy"] != noisy["result"]["final_accuracy"]
        or again["result"]["curve"] != noisy["result"]["curve"]
    )
    for command in (["lint", "published"], ["export", "published", *into]):
        invoked = CliRunner().invoke(cli.app, [*command, "--store", str(tmp_path)])
        assert (
            invoked.exit_code == 0 and "noise_from_seed: " not in invoked.output.replace("\n", " ").split("Judged")[0]
        )

    more = {**SUITE, "seeds": 2}  # forgets the flag, and has a trial more
    went_on = fg.run(more, store=tmp_path, jobs=1)
    kept = went_on.records[again["cell"], 0]
    assert kept == again and went_on.records[again["cell"], 1]["threat_card"]["noise_from"] == "operating system"
    anew = fg.run(more, store=tmp_path, jobs=1, fresh=True)
    assert {record["threat_card"]["noise_from"] for record in anew.records.values()} == {None, "seed"}


def test_an_audit_of_a_suite_does_not_ask_where_noise_is_from() -> None:
    (one,) = fg.audit(SUITE, canaries=100)
    assert one.audit.verdict == "consistent"
