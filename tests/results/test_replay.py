"""Rounds kept for a replay: against a plain loop over the updates, files that are damaged, and what asks for them."""

from __future__ import annotations

import io
import itertools
import json
import zipfile

import numpy as np
import pytest

import fedguard as fg
from fedguard import api
from fedguard.bench.records import replay
from fedguard.bench.records.replay import KeptRound
from fedguard.bench.results.replay import draw_in_plane
from fedguard.bench.running.replay import RoundKeeper
from fedguard.bench.running.trial import run_trial
from fedguard.errors import ConfigError, StoreError

SUITE = {
    "name": "rounds",
    "clients": {"total": 8, "malicious": 2},
    "training": {"rounds": 4},
    "seeds": 2,
    "matrix": {"attack": ["none", "sign_flip"], "defense": ["mean", "krum", "median"]},
}


class Witness(RoundKeeper):
    """Keeps the updates too."""

    def __init__(self, every: int = 1) -> None:
        super().__init__(every)
        self.seen = []

    def __call__(self, round, received, aggregate, weights):
        super().__call__(round, received, aggregate, weights)
        sent = received.sent
        rows = [row for row, client in enumerate(sent.senders) if client in received.clients]
        vector = None if aggregate is None else aggregate.double().numpy().copy()
        behind = None if weights is None else list(zip(received.behind, weights.tolist(), strict=True))
        self.seen.append((sent.updates[rows].double().numpy().copy(), [sent.senders[row] for row in rows],
                          set(sent.malicious), vector, behind))  # fmt: skip


def witness(**changes) -> Witness:
    kept = Witness()
    suite = {**SUITE, "seeds": 1, "matrix": {}, **changes}
    run_trial(api.lay_out(suite)[1].positions[0][1], 0, {}, replay=kept)
    return kept


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fg.run({**SUITE, "replay": {}}, store=tmp_path_factory.mktemp("store"), jobs=1)


def cell_of(run: fg.Run, attack: str, defense: str) -> str:
    return next(one["cell"] for one in run.rows() if (one["attack"], one["defense"]) == (attack, defense))


@pytest.mark.parametrize("attack", ["sign_flip", "ipm(tau=5)"])
@pytest.mark.parametrize("defense", ["mean", "krum", "median", "nnm >> krum"])
def test_what_is_kept_is_what_was_sent(attack, defense):
    """Every number of the plane, from the updates by a plain loop."""
    kept = witness(attack=attack, defense=defense)
    rounds = draw_in_plane(kept.rounds)
    assert len(rounds) == 4
    for one, (updates, clients, malicious, aggregate, behind) in zip(rounds, kept.seen, strict=True):
        assert list(one.kept.clients) == clients
        assert [bool(bad) for bad in one.kept.malicious] == [client in malicious for client in clients]
        honest = [update for update, client in zip(updates, clients, strict=True) if client not in malicious]
        mean = sum(honest) / len(honest)
        length = np.linalg.norm(mean)
        assert np.allclose(one.points[:, 0], updates @ mean / length**2, atol=1e-5)
        assert np.allclose(one.distances, [np.linalg.norm(update - mean) / length for update in updates], atol=1e-3)
        assert one.progress == pytest.approx(aggregate @ mean / length**2, abs=1e-5)
        assert one.missed == pytest.approx(np.linalg.norm(aggregate - mean) / length, abs=1e-3), (
            "of products in float32"
        )
        assert one.aggregate[0] == pytest.approx(one.progress)
        if one.kept.weights is not None:
            assert np.allclose(one.kept.weights @ updates, aggregate, atol=1e-5), "the weights make the aggregate"
        assert (one.kept.weights is None) == (defense == "median") == (behind is None)


def test_no_common_round_turns_over():
    """Clients stay on their side from one round to the next, and malicious ones begin above."""
    rounds = draw_in_plane(witness(attack="sign_flip", defense="median", training={"rounds": 8}).rounds)
    assert rounds[0].points[rounds[0].kept.malicious, 1].mean() >= 0
    for before, after in itertools.pairwise(rounds):
        was = dict(zip(before.kept.clients, before.points[:, 1], strict=True))
        assert sum(was[client] * y for client, y in zip(after.kept.clients, after.points[:, 1], strict=True)) > 0


def test_the_axes_of_the_first_round_are_the_same_vectors_in_all():
    kept = witness(attack="ipm(tau=5)", defense="median")
    rounds = draw_in_plane(kept.rounds, "first")
    updates, clients, malicious, *_ = kept.seen[0]
    mean = np.mean([row for row, client in zip(updates, clients, strict=True) if client not in malicious], 0)
    unit = mean @ mean
    # The second axis is the one vector that gives the y of the first round, within the span of its updates
    own = draw_in_plane(kept.rounds)[0].points[:, 1]
    across = np.linalg.lstsq(updates, rounds[0].points[:, 1] * unit, rcond=1e-4)[0]
    assert np.allclose(np.abs(own), np.abs(rounds[0].points[:, 1]), atol=1e-4)
    for one, (updates, *_, aggregate, _) in zip(rounds, kept.seen, strict=True):
        assert np.allclose(one.points[:, 0], updates @ mean / unit, atol=1e-4)
        assert np.allclose(one.points[:, 1], updates @ across / unit, atol=1e-3)
        assert np.allclose(one.aggregate, [aggregate @ mean / unit, aggregate @ across / unit], atol=1e-3)


@pytest.mark.parametrize("mode", ["full", {"groups": 2}])
def test_clients_behind_a_sum_share_its_weight(mode):
    kept = witness(attack="sign_flip", defense="mean", protocol={"secure_aggregation": mode})
    for one, (updates, clients, *_, aggregate, behind) in zip(kept.rounds, kept.seen, strict=True):
        expected = dict.fromkeys(clients, 0.0)
        for group, weight in behind:
            for client in group:
                expected[client] += weight / len(group)
        assert np.allclose(one.weights, [expected[client] for client in clients])
        assert np.allclose(one.weights @ updates, aggregate, atol=1e-3), "up to the rounding of the encoding"


def test_a_server_in_simulated_time_is_replayed():
    kept = witness(architecture="fedbuff", network={}, attack="sign_flip", clients={"total": 8, "malicious": 2})
    for one, (_updates, *_, _aggregate, _behind) in zip(kept.rounds, kept.seen, strict=False):
        assert one.weights is None or len(one.weights) == len(one.clients)
    assert kept.rounds


def test_one_seed_is_kept_and_records_are_the_same(run, tmp_path):
    plain = fg.run(SUITE, store=tmp_path, jobs=1)
    assert set(run.records) == set(plain.records)
    for trial, record in run.records.items():
        without = ("cost", "environment", "sha256")
        told = [
            {key: value for key, value in one.items() if key not in without} for one in (record, plain.records[trial])
        ]
        assert told[0] == told[1]
        assert run.folder.replay_path(*trial).exists() == (
            trial[1] == 0 and trial[0] in {p["cell"] for p in run.manifest["positions"]}
        )
    assert not list((plain.folder.path / "artifacts").glob("*replay*"))


def test_a_stored_trial_runs_again_for_its_replay_and_only_once(tmp_path):
    suite = {**SUITE, "seeds": 1, "training": {"rounds": 1}, "matrix": {"defense": ["mean"]}}
    first = fg.run(suite, store=tmp_path, jobs=1)
    (cell,) = {one["cell"] for one in first.rows()}
    made = first.folder.record_path(cell, 0).stat().st_mtime_ns
    asked = {**suite, "replay": {}}
    again = fg.run(asked, store=tmp_path, jobs=1)
    after = again.folder.record_path(cell, 0).stat().st_mtime_ns
    assert after > made and len(replay.load(again.folder, cell, 0)) == 1
    fg.run(asked, store=tmp_path, jobs=1)
    assert again.folder.record_path(cell, 0).stat().st_mtime_ns == after


def test_only_the_asked_rounds_and_seed_are_kept(tmp_path):
    asked = {"seed": 1, "every": 3}
    run = fg.run({**SUITE, "matrix": {"defense": ["mean"]}, "replay": asked}, store=tmp_path, jobs=1)
    (cell,) = {one["cell"] for one in run.rows()}
    assert [one.round for one in replay.load(run.folder, cell, 1)] == [1, 4]
    assert not run.folder.replay_path(cell, 0).exists()


def test_no_more_is_kept_than_a_file_may_hold(monkeypatch):
    monkeypatch.setattr("fedguard.bench.running.replay.LARGEST", 2 * replay.size_of(8, 2))
    assert [one.round for one in witness(defense="mean").rounds] == [1, 2]


def test_a_seed_that_does_not_run_cannot_be_replayed():
    with pytest.raises(ConfigError, match=r"replay\.seed: expected one of seeds; got 7"):
        api.lay_out({**SUITE, "replay": {"seed": 7}})


def test_what_cannot_be_kept_is_said_before(capsys, tmp_path):
    from rich.console import Console

    from fedguard.bench.running.check import explain_refusals, render_plan

    suite = {**SUITE, "matrix": {"architecture": ["server", "d_psgd"]}, "defense": "mean", "replay": {}}
    plan = api.lay_out(suite)[1]
    console = Console(record=True, width=300)
    console.print(render_plan(plan, explain_refusals(plan)))
    said = console.export_text()
    assert "Replay: no rounds are kept of 1 cells: d_psgd has no server" in said
    size = f"{replay.size_of(8, 4) / 2**10:.1f} KiB"
    assert "0.0" not in size
    assert (
        f"of 1 cells the rounds of seed 0 are kept as inner products, at most {size} a cell and {size} in all" in said
    )


def kept(round: int = 1, n: int = 3, weights=True, aggregated=True) -> KeptRound:
    rows = np.random.default_rng(round).normal(size=(n + aggregated + 2, 5))
    rows = np.concatenate([rows, np.zeros((1, 5))])
    shares = np.linspace(0, 1, n) + round if weights else None
    return KeptRound(round, tuple(range(n)), np.arange(n) == 0, shares, rows @ rows.T, aggregated)


def test_a_file_gives_back_what_was_saved(run):
    rounds = [kept(1), kept(2, 5, weights=False), kept(4, 1, aggregated=False)]
    replay.save(run.folder, "0" * 12, 3, rounds)
    found = replay.load(run.folder, "0" * 12, 3)
    for one, other in zip(found, rounds, strict=True):
        assert (one.round, one.clients, one.aggregated) == (other.round, other.clients, other.aggregated)
        assert (one.malicious == other.malicious).all() and (one.inner == other.inner).all()
        assert (one.weights is None) == (other.weights is None)
        assert one.weights is None or (one.weights == other.weights).all()
    replay.save(run.folder, "0" * 12, 3, [])
    assert replay.load(run.folder, "0" * 12, 3) == []


def saved(**changes) -> bytes:
    n, k = 3, 7
    arrays = {
        "rounds": np.array([1]), "sizes": np.array([n]), "aggregated": np.array([True]), "clients": np.arange(n),
        "malicious": np.zeros(n, bool), "weights": np.ones(n), "inner": np.eye(k).ravel(), "trial": np.array(["cell 0"]),
    } | changes  # fmt: skip
    written = io.BytesIO()
    np.savez(written, **{name: value for name, value in arrays.items() if value is not None})
    return written.getvalue()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (saved(trial=np.array(["other 0"])), "another trial"),
        (saved(inner=np.full(49, np.nan)), "finite inner products"),
        (saved(inner=np.eye(8).ravel()), "inner products of all updates"),
        (saved(inner=np.arange(49.0)), "symmetric"),
        (saved(sizes=np.array([-3])), "one above 0"),
        (saved(rounds=np.array([0])), "ascending numbers from 1"),
        (saved(clients=np.arange(4)), "3 updates in each array"),
        (saved(weights=np.array([np.nan, 1, 1])), "weights: expected finite"),
        (saved(malicious=np.zeros(3)), "malicious: expected one row of bool"),
        (saved(inner=np.eye(7)), "inner: expected one row of float64"),
        (saved(inner=None), "inner"),
        (saved(clients=np.array([{}, [], "code"], object)), "pickle"),
        (saved()[:300], "zip"),
        (b"", "zip"),
        (b"x" * 100, "zip"),
        (saved(inner=np.zeros(2**22 + 1)), "expected at most"),
    ],
)
def test_a_damaged_file_is_one_clear_line(run, content, why):
    path = run.folder.replay_path("cell", 0)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=why) as raised:
        replay.load(run.folder, "cell", 0)
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)


def test_a_bomb_is_not_unpacked(run):
    path = run.folder.replay_path("cell", 0)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.npy", bytes(replay.LARGEST + 1))
    assert path.stat().st_size < 2**20
    with pytest.raises(StoreError, match="bytes of arrays"):
        replay.load(run.folder, "cell", 0)


def test_a_pipe_or_folder_in_its_place_is_one_clear_line(run):
    path = run.folder.replay_path("folder", 0)
    path.mkdir()
    with pytest.raises(StoreError, match="a folder"):
        replay.load(run.folder, "folder", 0)


def test_identity_does_not_know_of_it():
    ids = [[cell.id for cell in api.lay_out({**SUITE, **more})[1].cells] for more in ({}, {"replay": {"every": 2}})]
    assert ids[0] == ids[1]
    assert "replay" not in json.dumps(api.lay_out({**SUITE, "replay": {}})[1].cells[0].canonical)
