"""Rules that count clients by their examples, and the mixings that keep who is behind each row: against plain loops."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pytest
import torch

from fedguard.aggregation import aggregate
from fedguard.contracts import ROWS, Mixing, Pipeline
from fedguard.errors import ConfigError, ContractError, PreconditionError
from fedguard.registry import load_registry
from tests.table import context, normal, pipeline, run

#: Six unequal sites, small enough to be written out example by example
SIZES = [9, 5, 3, 2, 1, 20]
KEEPING = ("clip", "arc", "adaptive_clipping", "staleness_clipping")


def weigh(text: str, updates: torch.Tensor, sizes: list[float], f: int = 1) -> torch.Tensor:
    seen = context(len(updates), f, dim=updates.shape[1])
    claimed = seen.restrict("test", seen.granted, samples=torch.tensor(sizes, dtype=torch.float64))
    return aggregate(pipeline(text), updates, claimed).vector


def written_out(column: list[float], sizes: list[int]) -> list[float]:
    """Each value as often as its client has examples, in ascending order."""
    return sorted(value for value, size in zip(column, sizes, strict=True) for _ in range(size))


@pytest.mark.parametrize("seed", range(4))
def test_the_weighted_median_is_the_median_of_all_examples(seed):
    updates = normal(6, 11, seed)
    expected = [statistics.median(written_out(column, SIZES)) for column in updates.T.tolist()]
    assert weigh("weighted_median", updates, SIZES).tolist() == pytest.approx(expected, abs=1e-6)


def test_at_exactly_half_of_the_weight_it_is_the_mean_of_two_values():
    assert weigh("weighted_median", torch.tensor([[1.0], [4.0], [9.0]]), [3, 1, 2]).tolist() == [2.5]
    assert weigh("weighted_median", torch.tensor([[1.0], [4.0], [9.0]]), [0.3, 0.1, 0.2]).tolist() == [2.5]
    assert weigh("weighted_median", torch.tensor([[1.0], [4.0], [9.0]]), [0, 1, 0]).tolist() == [4.0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cut", [0, 4, 8, 11, 19])
def test_the_weighted_trimmed_mean_is_the_trimmed_mean_of_all_examples(seed, cut):
    updates = normal(6, 7, seed)
    kept = [written_out(column, SIZES)[cut : 40 - cut] for column in updates.T.tolist()]
    expected = [sum(values) / len(values) for values in kept]
    found = weigh(f"weighted_trimmed_mean(share={cut / 40})", updates, SIZES)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("n", "f"), [(5, 1), (6, 1), (7, 2), (8, 3)])
def test_of_equal_claims_they_are_the_rules_without_weights(n, f):
    updates = normal(n, 9, n)
    assert torch.equal(run("weighted_median", updates, f).vector, run("median", updates, f).vector)
    trimmed = run(f"weighted_trimmed_mean(share={f / n})", updates, f).vector
    assert torch.allclose(trimmed, run("trimmed_mean", updates, f).vector, atol=1e-6)


@pytest.mark.parametrize("text", ["weighted_median", "weighted_trimmed_mean(share=0.23)"])
def test_they_stand_below_their_share_of_the_weight_and_fall_above_it(text):
    honest, far = normal(5, 4, 1), torch.full((1, 4), 1e9)
    low, high = honest.min(0).values, honest.max(0).values
    for sizes, stands in (([4, 4, 4, 4, 4, 5], True), ([1, 1, 1, 1, 1, 6], False)):
        found = weigh(text, torch.cat([honest, far]), sizes)
        assert bool(((found >= low - 1e-5) & (found <= high + 1e-5)).all()) is stands


@pytest.mark.parametrize("text", ["weighted_median", "weighted_trimmed_mean", "capped_mean(share=0.3, clients=1)"])
def test_claims_that_add_up_to_nothing_are_refused(text):
    with pytest.raises(PreconditionError, match="weighs by numbers of examples"):
        weigh(text, normal(5, 2), [0, 0, 0, 0, 0])


def test_half_of_the_weight_cannot_be_cut_off_at_either_end():
    with pytest.raises(ConfigError, match="share: expected a number in .0, 0.5.; got 0.5"):
        load_registry().pipeline("weighted_trimmed_mean(share=0.5)")


# A cap that holds for each single client.


def capped_alone(sizes: list[float], share: float) -> list[float]:
    """No client above the share: of many caps the largest that does."""
    best = min(sizes)
    for step in range(1, 20_001):
        cap = max(sizes) * step / 20_000
        cut = [min(size, cap) for size in sizes]
        if max(cut) <= share * sum(cut) * (1 + 1e-12):
            best = max(best, cap)
    cut = [min(size, best) for size in sizes]
    return [size / sum(cut) for size in cut]


@pytest.mark.parametrize("f", [0, 1, 2])
@pytest.mark.parametrize("share", [0.2, 0.3, 0.6])
def test_a_share_for_one_client_holds_whatever_f_is(f, share):
    sizes = [17834.0, 8000.0, 5000.0, 2500.0, 900.0, 190.0]
    updates = normal(6, 5, 3)
    expected = torch.tensor(capped_alone(sizes, share)) @ updates
    text = f"capped_mean(share={share}, clients=1)"
    assert weigh(text, updates, sizes, f).tolist() == pytest.approx(expected.tolist(), abs=1e-3)


def test_a_cap_that_not_even_equal_clients_keep_is_refused():
    with pytest.raises(
        PreconditionError, match=r"clients = 1 of n = 4 equal clients hold more than 0.2.*share to 0.25"
    ):
        pipeline("capped_mean(share=0.2, clients=1)").check(4, 0)
    with pytest.raises(PreconditionError, match="or lower clients"):
        pipeline("capped_mean(share=0.9, clients=9)").check(4, 0)


def test_the_default_cap_keeps_its_identity():
    assert pipeline("capped_mean").spec() == [{"name": "capped_mean", "share": 0.5}]
    assert pipeline("capped_mean(clients=1)").spec() == [{"name": "capped_mean", "share": 0.5, "clients": 1}]


# Who is behind each row.


def mixings() -> dict[str, type[Mixing]]:
    return {cls.name: cls for _, cls in load_registry().classes(["defense"]) if issubclass(cls, Mixing)}


def test_the_mixings_that_keep_rows_are_those_with_diagonal_matrices():
    """Measured on rows of many lengths, not read off the declaration."""
    for name, cls in mixings().items():
        diagonal = True
        for seed in range(5):
            updates, stages = normal(8, 5, seed) * torch.arange(1, 9)[:, None], []
            seen = context(8, 2, dim=5, seed=seed)
            recorded = record_matrix(cls, stages)
            aggregate(Pipeline((recorded, *pipeline("mean").stages)), updates, seen)
            diagonal &= stages[0].shape == (8, 8) and torch.equal(stages[0], stages[0].diagonal().diag())
        assert diagonal is cls.keeps_rows is (name in KEEPING), name


def record_matrix(cls: type[Mixing], found: list[torch.Tensor]) -> Mixing:
    """The mixing with its defaults, which notes its matrices and declares nothing."""

    class Recording(cls):
        keeps_rows = False

        def matrix(self, gram, context):
            found.append(super().matrix(gram, context))
            return found[-1]

    return Recording()


def lookers() -> list[str]:
    return [
        cls.name for _, cls in load_registry().classes(["defense"]) if cls.reads_clients and not issubclass(cls, Mixing)
    ]


@pytest.mark.parametrize("rule", lookers())
def test_each_rule_that_looks_up_clients_stands_behind_what_keeps_rows_alone(rule):
    for mixing in mixings():
        if mixing in KEEPING:
            assert str(load_registry().pipeline(f"{mixing} >> {rule}")) == f"{mixing} >> {rule}"
        else:
            for text in (f"{mixing} >> {rule}", f"clip >> {mixing} >> {rule}", f"{mixing} >> clip >> {rule}"):
                with pytest.raises(
                    ConfigError, match=f"{rule} looks up the client behind each row, and {mixing} mixes"
                ):
                    load_registry().pipeline(text)


def test_clip_then_weigh_is_the_weighted_mean_of_clipped_rows():
    updates = normal(6, 5, 2) * torch.tensor([0.1, 1.0, 2.0, 4.0, 8.0, 50.0])[:, None]
    lengths = sorted(float(row.norm()) for row in updates)
    bound = (lengths[2] + lengths[3]) / 2
    expected = torch.zeros(5)
    for row, size in zip(updates, SIZES, strict=True):
        expected += size / sum(SIZES) * row * min(1.0, bound / float(row.norm()))
    assert weigh("clip >> weighted_mean", updates, SIZES).tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert weigh("clip >> arc >> weighted_mean", updates, SIZES).isfinite().all()


def test_a_mixing_that_declares_to_keep_rows_and_mixes_them_is_stopped():
    @dataclass(frozen=True, kw_only=True)
    class Lying(Mixing):
        name, needs, keeps_rows = "lying", ROWS, True

        def matrix(self, gram, context):
            return torch.eye(gram.n, dtype=torch.float64).roll(1, 0)

    with pytest.raises(ContractError, match="declares keeps_rows, and its matrix is not diagonal"):
        aggregate(Lying() >> pipeline("weighted_mean"), normal(5, 2), context(5, 1, dim=2))
