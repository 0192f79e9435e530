"""Networks of tokens: what they receive, and padding, which they must not read."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedguard.contracts import Dataset, Examples, LocalPlan, Model
from fedguard.contracts.tasks import Tokens
from fedguard.errors import ConfigError
from fedguard.rng import Rng
from fedguard.tasks.classification import fitting
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.data.dataset_checks import check_dataset

VOCABULARY, LENGTH, PADDING = 11, 6, 4


class Given(Model):
    name = "given"

    def __init__(self, make) -> None:
        self.make = make

    def build(self, shape, classes):
        return self.make()


class Reader(nn.Module):
    """Attention of one head over embeddings of tokens and places, and a mean over what is no padding.

    Args:
        attends, averages: whether attention and mean leave padding out.
    """

    def __init__(self, attends=True, averages=True, frozen=False) -> None:
        super().__init__()
        self.attends, self.averages = attends, averages
        self.words, self.places = nn.Embedding(VOCABULARY, 8), nn.Embedding(LENGTH, 8)
        self.value, self.out = nn.Linear(8, 8), nn.Linear(8, 3)
        self.words.requires_grad_(not frozen)
        self.register_buffer("order", torch.arange(LENGTH))

    def forward(self, x):
        assert x.dtype == torch.int64
        seen = x != PADDING
        signal = self.words(x) + self.places(self.order)
        scores = signal @ signal.transpose(1, 2) / 8
        if self.attends:
            scores = scores.masked_fill(~seen[:, None], -1e9)
        signal = scores.softmax(-1) @ self.value(signal)
        weight = seen.float() if self.averages else torch.ones(x.shape)
        return self.out((signal * weight[..., None]).sum(1) / weight.sum(1, keepdim=True).clamp(min=1))


def texts(n=12, seed=1) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(VOCABULARY - 1, (n, LENGTH), generator=draw)
    x += x >= PADDING
    x[:, 4:] = PADDING
    return Examples(x.float(), torch.arange(n) % 3)


def dataset(padding=PADDING, **changes) -> Dataset:
    part = texts()
    given = {"train": part, "test": part, "classes": 3, "value_range": (0.0, VOCABULARY - 1.0)}
    return Dataset(**(given | {"tokens": Tokens(VOCABULARY, padding)} | changes))


def network_of(make, padding=PADDING):
    return fitting(Given(make), dataset(padding), None)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_network_with_embeddings_receives_whole_numbers_in_evaluation_and_in_training(frozen):
    network = network_of(lambda: Reader(frozen=frozen))
    model, x = network.flat.clone(), texts().x
    expected = network.module(x.long()).detach()
    torch.testing.assert_close(network.logits(model, x), expected)
    torch.testing.assert_close(network(model, x).detach(), expected)


def test_padding_trains_nothing():
    network = network_of(Reader)
    out = torch.empty(1, network.dim)
    Cohort(network, [texts()]).train(network.flat.clone(), [0], LocalPlan(lr=0.5, epochs=3, batch_size=4), Rng(0), out)
    words = out[0, : VOCABULARY * 8].view(VOCABULARY, 8)
    assert not words[PADDING].any() and words[PADDING + 1].any()


@pytest.mark.parametrize(("attends", "averages"), [(False, True), (True, False), (False, False)])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_network_that_reads_padding_is_refused(attends, averages, frozen):
    with pytest.raises(ConfigError, match="reads the padding, token 4: the logits of a short text depend on"):
        network_of(lambda: Reader(attends, averages, frozen))
    network_of(lambda: Reader(attends, averages, frozen), padding=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": True}, "tokens: expected Tokens; got True"),
        ({"tokens": Tokens(1)}, "expected a vocabulary from 2 to 2^24; got 1"),
        ({"tokens": Tokens(12)}, "expected whole numbers in a value_range of (0, 11)"),
        ({"train": texts().replace(x=texts().x + 0.5)}, "expected whole numbers"),
        ({"tokens": Tokens(VOCABULARY, 11)}, "padding: expected a number below the vocabulary of 11; got 11"),
    ],
)
def test_data_that_are_no_tokens_are_refused(changes, message):
    assert check_dataset("here", dataset()).tokens == Tokens(VOCABULARY, PADDING)
    with pytest.raises(ConfigError) as caught:
        check_dataset("here", dataset(**changes))
    assert message in str(caught.value)
