"""Cross-device scale: what must hold with thousands of clients of whom a few take part."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import torch
from scipy import stats

import fedguard as fg
from fedguard.algorithms import client_state
from fedguard.bench.records.record import to_text
from fedguard.contracts import Examples, LocalPlan, Participation, Partition, Stay
from fedguard.errors import ConfigError
from fedguard.metrics import dissimilarity as measure
from fedguard.metrics import minority
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification
from fedguard.tasks.cohort import schedule

CLIENTS, ROUND, MALICIOUS = 10_000, 100, 10

MODULE = """
import numpy as np, torch
from fedguard.contracts import Dataset, Examples

def part(clients, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(3 * clients, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
    return Examples(torch.from_numpy(x), torch.from_numpy(y), torch.arange(clients).repeat_interleave(3))

def data():
    return Dataset(part(10_000, 0), part(100, 1), 3, (-6.0, 6.0))
"""


@pytest.fixture
def suite(tmp_path):
    """A federation of 10,000 with three examples each."""
    (tmp_path / "crowd.py").write_text(MODULE)
    text = {
        "name": "crowd",
        "task": {"data": "crowd:data", "partition": "natural"},
        "clients": {"total": CLIENTS, "per_round": ROUND, "malicious": MALICIOUS},
        "training": {"rounds": 4, "lr": 0.5},
        "seeds": 1,
        "matrix": {"attack": ["none", "label_flip"], "defense": ["mean", "trimmed_mean"]},
    }
    (tmp_path / "suite.yaml").write_text(json.dumps(text))
    yield tmp_path / "suite.yaml"
    sys.modules.pop("crowd", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


class Given:
    """A task whose clients' gradients are given, float32 ``[clients, d]``."""

    classes = 2

    def __init__(self, gradients):
        self.gradients, self.dim, self.sizes = gradients, gradients.shape[1], (1,) * len(gradients)
        self.asked = []
        self._of_class = [Examples(torch.zeros(1, 1), torch.tensor([label])) for label in range(self.classes)]

    def examples(self, client):
        return self._of_class[client % 2]

    def initial_model(self, rng):
        return torch.zeros(self.dim)

    def local_updates(self, model, clients, plan, rng, out, statistics=None):
        self.asked.append(len(clients))
        out.copy_(self.gradients[list(clients)])
        return out


def relative(gradients):
    """mean_i |g_i - g|^2 / |g|^2, in float64."""
    gradients = gradients.double()
    mean = gradients.mean(0)
    return float(sum((one - mean) @ (one - mean) for one in gradients) / len(gradients) / (mean @ mean))


def gradients(clients, strength):
    draw = torch.Generator().manual_seed(0)
    lengths = torch.rand(clients, 1, generator=draw) + 0.5
    return lengths * torch.randn(clients, 20, generator=draw) + strength


# Dissimilarity.


def test_of_many_clients_the_dissimilarity_is_estimated_without_bias_and_its_error_is_what_it_says():
    task = Given(gradients(2000, 0.2))
    truth = relative(task.gradients)
    found = [measure.dissimilarity(task, Rng(seed)) for seed in range(80)]
    errors = np.array([one["gradient_dissimilarity"] for one in found]) - truth
    said = np.array([one["gradient_error"] for one in found])
    assert truth > 20  # without the correction the estimate would be about 1 too low
    assert abs(errors.mean()) < 3.5 * errors.std() / math.sqrt(len(errors))
    assert 0.75 < np.sqrt((errors**2).mean() / (said**2).mean()) < 1.3
    assert {one["gradient_clients"] for one in found} == {measure.MEASURED}


def test_of_few_clients_it_is_exact_and_says_no_error():
    task = Given(gradients(measure.MEASURED, 0.5))
    found = measure.dissimilarity(task, Rng(0))
    assert found["gradient_dissimilarity"] == pytest.approx(relative(task.gradients), rel=1e-5)
    assert "gradient_error" not in found


def test_no_client_is_measured_on_more_than_so_many_examples(monkeypatch):
    """The gradient of a client with many examples is that of a sample; up to the bound it is that of all, to the last bit."""
    monkeypatch.setattr(measure, "EXAMPLES", 20)
    task, used = Given(gradients(3, 0.5)), []

    def local_updates(model, clients, plan, rng, out, statistics=None):
        draws = [rng.child("client", client).numpy() for client in clients]
        used.extend(schedule(plan, task.sizes[client], draw) for client, draw in zip(clients, draws, strict=True))
        return out.copy_(task.gradients[list(clients)])

    task.local_updates, task.sizes = local_updates, (19, 20, 300)
    assert measure.dissimilarity(task, Rng(0))["gradient_examples"] == 20
    assert [batches.shape for batches in used] == [(1, 19), (1, 20), (1, 20)]
    whole = LocalPlan(lr=1.0, batch_size=None, steps=1)
    for client in (0, 1):
        draw = Rng(0).child("dissimilarity").child("client", client).numpy()
        assert (used[client] == schedule(whole, task.sizes[client], draw)).all()
    task.sizes = (19, 20, 20)
    assert "gradient_examples" not in measure.dissimilarity(task, Rng(0))


@pytest.mark.parametrize("clients", [40, 1000])
def test_no_more_gradients_are_held_than_there_is_room_for(clients):
    whole = measure.dissimilarity(Given(gradients(clients, 0.5)), Rng(0))
    task = Given(gradients(clients, 0.5))
    parts = measure.dissimilarity(task, Rng(0), held=7 * 20)
    assert max(task.asked) == 7
    assert parts == pytest.approx(whole, rel=1e-4)


# Who takes part.


def malicious_in(participation, rounds):
    malicious = set(Rng(5).child("hostile").numpy().permutation(CLIENTS)[:MALICIOUS].tolist())
    drawn = [participation.choose(Rng(0).child("participation", round), round) for round in range(1, rounds + 1)]
    return [len(malicious.intersection(one)) for one in drawn], [len(one) for one in drawn]


def p_value(counts, law):
    """Of a chi-squared test of the counts of 0, 1, and 2 or more."""
    expected = [law.pmf(0), law.pmf(1), law.sf(1)]
    found = np.bincount(np.minimum(counts, 2), minlength=3)
    return stats.chisquare(found, np.array(expected) * len(counts)).pvalue


def test_malicious_clients_in_a_round_follow_the_hypergeometric_law():
    found, sizes = malicious_in(Participation(total=CLIENTS, per_round=ROUND), 1500)
    assert set(sizes) == {ROUND}
    assert p_value(found, stats.hypergeom(CLIENTS, MALICIOUS, ROUND)) > 1e-3
    assert p_value(found, stats.hypergeom(CLIENTS, 2 * MALICIOUS, ROUND)) < 1e-6  # the test tells them apart


def test_under_poisson_sampling_the_binomial_law():
    found, sizes = malicious_in(Participation(total=CLIENTS, per_round=ROUND, sampling="poisson"), 1500)
    assert p_value(found, stats.binom(MALICIOUS, ROUND / CLIENTS)) > 1e-3
    assert np.std(sizes) == pytest.approx(math.sqrt(ROUND * 0.99), rel=0.1)


def test_poisson_sampling_tosses_a_coin_for_each_client_that_is_there():
    stay = Stay(clients=300, joins=3)
    for round, first in ((1, 300), (3, 0)):
        participation = Participation(total=1000, per_round=50, sampling="poisson", schedule=(stay,))
        tosses = Rng(1).numpy().random(1000)
        expected = tuple(client for client in range(first, 1000) if tosses[client] < 0.05)
        assert participation.choose(Rng(1), round) == expected


# Partitions.


def examples(count, classes=10, owners=None):
    draw = np.random.default_rng(0)
    client = None if owners is None else torch.from_numpy(draw.integers(0, owners, count))
    return Examples(torch.zeros(count, 1), torch.from_numpy(draw.integers(0, classes, count)), client)


def test_natural_clients_get_what_is_theirs():
    given = examples(20_000, owners=3000)
    parts = load_registry().build("partition", "natural").split(given, 2500, Rng(0))
    owner = given.client.numpy()
    for part in parts:
        assert part.tolist() == np.flatnonzero(owner == owner[part[0]]).tolist()
    assert len({int(owner[part[0]]) for part in parts}) == 2500


def test_a_partition_serves_ten_thousand_or_says_why_not():
    given = examples(50_000)
    for spec in ("iid", "gamma_similarity", "label_sorted(shards=2)", "quantity_skew", "rare_class(holders=10)"):
        parts = load_registry().build("partition", spec).split(given, CLIENTS, Rng(0))
        assert len(parts) == CLIENTS
        assert min(map(len, parts)) >= 1
        assert len(np.unique(np.concatenate(parts))) == 50_000
    with pytest.raises(ConfigError, match="left one of 1000 clients with fewer than 2 of the 2000 examples"):
        load_registry().build("partition", "dirichlet(alpha=0.1)").split(examples(2000), 1000, Rng(0))


class Forgetful(Partition):
    name = "forgetful"
    source = "a fault"

    def split(self, examples, clients, rng):
        return [np.arange(0)] * 2 + np.array_split(np.arange(len(examples)), clients - 2)


def test_a_client_without_examples_is_named():
    digits, softmax = load_registry().build("data", "digits"), load_registry().build("model", "softmax")
    with pytest.raises(ConfigError, match="for each of 20 clients; 2 of them, client 0 first, have none of the 1437"):
        Classification.deal(digits, softmax, Forgetful(), 20, Rng(0))


# Records.


class Alone:
    """A task in which each class is held by few clients."""

    classes = 10
    sizes = (1,) * 5000

    def examples(self, client):
        return Examples(torch.zeros(1, 1), torch.tensor([client % 10]))


class Round:
    not_finite = ()
    excluded = (7, 8, 9)
    clients = (1, 7, 8, 9)


def test_of_many_minorities_the_most_excluded_are_told():
    found = minority.minorities(Alone(), [Round()], malicious={8}, class_accuracy=[0.5] * 10)
    assert len(found) == minority.MOST
    assert [one["client"] for one in found] == sorted(one["client"] for one in found)
    assert {one["client"] for one in found if one["excluded"] == 1} == {7, 9}
    assert 1 in [one["client"] for one in found if one["excluded"] == 0]


def test_ten_thousand_clients_train_and_their_records_are_small(suite):
    run = fg.run(suite, store=suite.parent / "runs", jobs=1)
    assert {record["status"] for record in run.records.values()} == {"ok"}
    for record in run.records.values():
        assert len(to_text(record)) < 12_000
        assert record["result"]["rounds"]["updates"] == 4 * ROUND
        assert record["threat_card"]["assumed_f_per_round"] == 1
        measured = record["threat_card"]["dissimilarity"]
        assert (measured["gradient_clients"], measured["smallest_client"]) == (measure.MEASURED, 3)


def test_what_does_not_fit_into_memory_is_refused_in_one_line(suite, monkeypatch):
    """15 floats of each of the about 394 clients that take part in 4 rounds: 23 kB."""
    monkeypatch.setattr(client_state, "physical_memory", lambda: 20_000.0)
    settings = ["training.algorithm=feddyn", "training.alpha=0.1"]
    with pytest.raises(
        fg.errors.NotAllowed, match="each client that takes part keeps 15 floats, about 394 clients in 4"
    ):
        fg.run(suite, store=suite.parent / "runs", jobs=1, overrides=settings)
    monkeypatch.setattr(client_state, "physical_memory", lambda: 30_000.0)
    assert fg.run(suite, store=suite.parent / "runs", jobs=1, overrides=[*settings, "matrix.attack=[none]"]).records


# Real data of this size come as LEAF files.


def test_leaf_files_of_3500_writers(tmp_path):
    draw = np.random.default_rng(0)
    for part, writers, each in (("train", 3500, 4), ("test", 100, 2)):
        (tmp_path / part).mkdir()
        names = [f"writer_{number:04}" for number in range(writers)]
        data = {}
        for name in names:
            x = draw.random((each, 4)).round(3)
            data[name] = {"x": x.tolist(), "y": (x[:, 0] > 0.5).astype(int).tolist()}
        (tmp_path / part / "all.json").write_text(json.dumps({"users": names, "user_data": data}))
    suite = {
        "name": "writers",
        "task": {"data": {"name": "leaf", "folder": str(tmp_path), "value_range": [0, 1]}, "partition": "natural"},
        "clients": {"total": 3500, "per_round": 0.01, "malicious": 0.001},
        "training": {"rounds": 20, "lr": 1.0},
        "seeds": 1,
    }
    (record,) = fg.run(suite, store=tmp_path / "runs", jobs=1).records.values()
    assert record["threat_card"]["dissimilarity"]["largest_client"] == 4
    assert record["threat_card"]["per_round"] == 35
    assert record["result"]["final_accuracy"] > 0.7
    with pytest.raises(fg.errors.NotAllowed, match="expected 3501 natural clients .* the data have 3500"):
        fg.run(suite | {"clients": {"total": 3501}}, store=tmp_path / "runs", jobs=1)
