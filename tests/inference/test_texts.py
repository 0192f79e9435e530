"""Texts read off gradients: the law of the span, both factors of an adapter, orders, and scores against plain loops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.contracts import LocalPlan, Sight
from fedguard.contracts.inference import RecoveredText
from fedguard.contracts.tasks import Tokens, select_trained
from fedguard.errors import ContractError, PreconditionError
from fedguard.inference import inference_view
from fedguard.metrics.texts import rouge_l, text_score
from fedguard.registry import load_registry
from fedguard.tasks.models.transformer import Transformer
from fedguard.tasks.network import flatten

KNOWN = load_registry()
VOCABULARY, WIDTH, PADDING, HEADS = 60, 24, 0, 4


class Encoder(nn.Module):
    """Embeddings of tokens and places, one attention that leaves padding out, a mean and a head.

    Shares of attention add up to 1, so a single head's query gradient of a text of l tokens has rank l - 1; four have l.

    Args:
        rank: of an adapter B A beside the frozen query, in place of a trained one; 0 for none.
        trained: which of the factors are.
    """

    def __init__(self, length, rank=0, trained="AB", start=True):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.randn(length, WIDTH))
        self.norm, self.query = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.down, self.up = nn.Linear(WIDTH, max(rank, 1), bias=False), nn.Linear(max(rank, 1), WIDTH, bias=False)
        self.rank = rank
        for name, parameter in self.named_parameters():
            if rank:
                parameter.requires_grad_(name in [{"A": "down.weight", "B": "up.weight"}[one] for one in trained])
            elif "down" in name or "up" in name:
                parameter.requires_grad_(False)
        if not start:
            nn.init.zeros_(self.up.weight)

    def forward(self, x):
        x = x.long()
        there = x != PADDING
        z = self.norm(self.words(x) + self.places)
        query = self.query(z) + (self.up(self.down(z)) if self.rank else 0)
        query, key, value = (one.unflatten(2, (HEADS, -1)).transpose(1, 2) for one in (query, z, self.value(z)))
        scores = (query @ key.transpose(2, 3)).masked_fill(~there[:, None, None], -1e9)
        signal = torch.tanh(z + (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)) * there[..., None]
        return self.head(signal.sum(1) / there.sum(1, keepdim=True))


def attack(name, module, x, *, steps=1, classes=3, **parameters):
    """What an attack claims of the update of one client that took SGD steps on these texts."""
    flat, trained = flatten(module), list(select_trained(module).values())
    before = flat.clone()
    y = torch.arange(len(x)) % classes
    for _ in range(steps):
        found = torch.cat([one.reshape(-1) for one in torch.autograd.grad(cross_entropy(module(x), y), trained)])
        flat -= 0.1 * found
    update = -0.1 * found if steps == 1 else flat - before
    view = inference_view(
        "the server",
        Sight.EACH_UPDATE | Sight.MODEL,
        module,
        models=torch.stack([before, before + update]),
        updates=update[None, None],
        shape=tuple(x.shape[1:]),
        classes=classes,
        value_range=(0.0, VOCABULARY - 1.0),
        plan=LocalPlan(lr=0.1, steps=steps, batch_size=len(x)),
        counts=(len(x),),
    )
    one = KNOWN.build("inference", {"name": name, **parameters})
    one.check(view)
    return one.infer(view)


def texts(count, length, seed=0):
    """Texts of different tokens: as many as there are places."""
    draw = torch.Generator().manual_seed(seed)
    return (1 + torch.randperm(VOCABULARY - 1, generator=draw)[: count * length]).view(count, length)


def module_of(length, seed=0, **options):
    torch.manual_seed(seed)
    return Encoder(length, **options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("options", "most", "inputs"),
    [
        ({}, WIDTH - 1, WIDTH),  # the layer normalization takes one dimension
        ({"rank": 8}, 8, WIDTH),
        ({"rank": 8, "trained": "A"}, 8, WIDTH),
        ({"rank": 9, "trained": "B"}, 8, 9),
        ({"rank": 9, "start": False}, 8, 9),  # B is 0 at the first step, and so is the gradient of A
    ],
)
def test_all_tokens_up_to_the_rank_and_none_above(options, most, inputs, seed):
    length = most // 2
    exact = texts(2, length, seed)
    claim = attack("dager", module_of(length, seed, **options), exact)
    wanted = set(exact.flatten().tolist())
    assert set(claim.tokens.tolist()) >= wanted, "each token"
    assert claim.rank == 2 * length
    if inputs - claim.rank > 4:  # else others are near the span by chance
        assert set(claim.tokens.tolist()) == wanted
    over = texts(2, length + 3, seed)
    claim = attack("dager", module_of(length + 3, seed, **options), over)
    assert len(claim.tokens) in (0, VOCABULARY), "nothing: no token, or every one"


@pytest.mark.parametrize("options", [{}, {"rank": 12}, {"rank": 12, "trained": "B"}])
def test_the_order_of_one_text_and_its_end(options):
    x = texts(1, 9)
    x[:, 6:] = PADDING
    claim = attack("dager", module_of(9, **options), x)
    assert claim.tokens.tolist() == [x[0, :6].tolist()] and claim.rank == 6


def test_without_places_there_is_no_order():
    module = module_of(6)
    with torch.no_grad():
        module.places.zero_()
    x = texts(1, 6)
    assert sorted(attack("dager", module, x).tokens.tolist()) == sorted(x[0].tolist())


def test_the_rank_of_an_update_of_several_steps_is_free_of_rounding():
    """The difference of two models holds the rounding of weights, which is no token."""
    x = texts(2, 4)
    claim = attack("dager", module_of(4, rank=16, trained="A"), x, steps=3)
    assert claim.rank == 8 and set(claim.tokens.tolist()) == set(x.flatten().tolist())


def test_below_the_rank_the_query_names_the_tokens_and_no_others():
    x = texts(2, 7)
    assert set(attack("dager", module_of(7), x).tokens.tolist()) == set(x.flatten().tolist())


def test_the_transformer_of_characters_is_read_by_both():
    torch.manual_seed(1)
    module, x = Transformer(width=64).build((12,), VOCABULARY), texts(2, 12)
    for name in ("dager", "embedding_rows"):
        claim = attack(name, module, x, classes=VOCABULARY)
        assert set(claim.tokens.tolist()) == set(x.flatten().tolist()), name


def test_embedding_rows_name_the_bag_at_any_size_and_after_any_steps():
    x = torch.randint(1, 30, (40, 10))
    x[:, 7:] = PADDING
    claim = attack("embedding_rows", module_of(10), x, steps=2)
    assert set(claim.tokens.tolist()) == set(x[:, :7].flatten().tolist()) and claim.rank is None


def test_what_cannot_be_read_is_refused():
    with pytest.raises(PreconditionError, match="expected an embedding that is trained; it is frozen. Take dager"):
        attack("embedding_rows", module_of(4, rank=4), texts(1, 4))
    frozen = module_of(4)
    for name, parameter in frozen.named_parameters():
        parameter.requires_grad_("head" in name)
    with pytest.raises(PreconditionError, match="expected a trained dense layer that reads each token by itself"):
        attack("dager", frozen, texts(1, 4))
    with pytest.raises(
        PreconditionError, match="expected texts, tokens by number that an nn.Embedding of 60 rows reads"
    ):
        attack("dager", nn.Sequential(nn.Linear(4, 3)), texts(1, 4).float())


def longest_common(a, b):
    """By trying all subsequences of a."""
    for size in range(len(a), 0, -1):
        for some in itertools.combinations(a, size):
            rest = iter(b)
            if all(one in rest for one in some):
                return size
    return 0


def test_rouge_l_is_its_formula():
    draw = torch.Generator().manual_seed(0)
    for _ in range(40):
        a, b = (
            torch.randint(4, (int(torch.randint(1, 7, (), generator=draw)),), generator=draw).tolist() for _ in "ab"
        )
        common = longest_common(a, b)
        recall, precision = common / len(b), common / len(a)
        expected = 2 * recall * precision / (recall + precision) if common else 0.0
        assert math.isclose(rouge_l(a, b), expected)
    assert rouge_l([], [1]) == 0.0


def test_scores_of_a_bag_leave_padding_out():
    x = torch.tensor([[5, 6, 6, 0], [7, 5, 0, 0]]).float()
    reference = torch.tensor([[5, 5, 5, 0, 0, 0, 0, 0], [9, 9, 8, 0, 0, 0, 0, 0]]).float()
    found = text_score(RecoveredText(torch.tensor([0, 5, 6, 11]), 3), x, Tokens(12, 0), reference)
    assert found["tokens"] == 3 and found["claimed"] == 3
    assert found["recall"] == pytest.approx(2 / 3) and found["precision"] == pytest.approx(2 / 3)
    assert found["trivial"] == pytest.approx(1 / 3)  # of 5, 9 and 8
    assert found["gain"] == pytest.approx(1 / 3) and found["rouge_l"] is None and found["rank"] == 3
    nothing = text_score(RecoveredText(torch.zeros(0, dtype=torch.int64)), x, Tokens(12, 0), reference)
    assert (nothing["recall"], nothing["precision"], nothing["f1"]) == (0, 0, 0)


def test_texts_in_order_are_matched_one_to_one():
    x = torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0]]).float()
    claim = RecoveredText(torch.tensor([[8, 9, 0, 0], [5, 7, 0, 0]]))
    assert text_score(claim, x, Tokens(12, 0), x)["rouge_l"] == pytest.approx((1 + 0.8) / 2)
    one = RecoveredText(torch.tensor([[8, 9]]))
    assert text_score(one, x, Tokens(12, 0), x)["rouge_l"] == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.tensor([1.0]), "expected int64 of shape"),
        (torch.tensor([12]), "expected 0 to 11; got 12 to 12"),
        (torch.zeros(3, 2, dtype=torch.int64), "claimed texts: expected at most 2; got 3"),
    ],
)
def test_claims_that_are_no_texts_break_the_contract(tokens, message):
    with pytest.raises(ContractError, match=message):
        text_score(RecoveredText(tokens), torch.ones(2, 4), Tokens(12, 0), torch.ones(2, 4))
