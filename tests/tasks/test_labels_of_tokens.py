"""Labels of tokens: losses, evaluation and per-example gradients against plain loops; what needs one label is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedguard.api import lay_out
from fedguard.architectures.by_node import _mean_of
from fedguard.bench.running.procedures import refusals
from fedguard.bench.running.trial import run_trial
from fedguard.contracts import Dataset, Evaluation, Examples, LocalPlan
from fedguard.contracts.tasks import DPSGD, NOT_ASKED, Tokens
from fedguard.errors import ConfigError
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.classification import Classification, fitting
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.data.dataset_checks import check_dataset
from fedguard.tasks.models.transformer import Transformer

V, LENGTH = 7, 5
MODEL = Transformer(width=8, heads=2, layers=1, answers="each")


def texts(n=9, seed=0) -> Examples:
    """Lopsided: the i-th text asks for 1 + i mod LENGTH tokens."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(V, (n, LENGTH), generator=draw)
    y = torch.randint(V, (n, LENGTH), generator=draw)
    for row in range(n):
        y[row, : LENGTH - 1 - row % LENGTH] = NOT_ASKED
    return Examples(x.float(), y)


def dataset(**changes) -> Dataset:
    given = {"train": texts(), "test": texts(11, 1), "classes": V, "value_range": (0.0, V - 1.0), "tokens": Tokens(V)}
    return Dataset(**(given | changes))


def loss_of(logits, labels) -> float:
    """The mean of one text's asked tokens' cross-entropies, by the formula."""
    each = [
        math.log(sum(math.exp(v) for v in row)) - row[label]
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True)
        if label != NOT_ASKED
    ]
    return sum(each) / len(each)


def test_the_loss_is_the_mean_over_texts_of_the_mean_over_asked_tokens():
    y, logits = (
        texts().y,
        3 * torch.randn(9, LENGTH, V, generator=torch.Generator().manual_seed(2), dtype=torch.float64),
    )
    alone = [loss_of(*one) for one in zip(logits, y, strict=True)]
    assert float(MODEL.loss(logits, y)) == pytest.approx(sum(alone) / 9)
    assert float(MODEL.loss(logits, y, "sum")) == pytest.approx(sum(alone))
    y[0] = NOT_ASKED
    assert float(MODEL.loss(logits[:1], y[:1])) == 0


def test_accuracy_counts_asked_tokens_and_perplexity_is_their_geometric_mean():
    data = dataset()
    network = fitting(MODEL, data, None)
    assert network.answers == (LENGTH,)
    task = Classification(data, (data.train,), None, MODEL, network)
    found = task.evaluate(network.flat.clone())
    with torch.no_grad():
        logits = network.module(data.test.x).double()
    rows = [
        (row, label)
        for text, labels in zip(logits.tolist(), data.test.y.tolist(), strict=True)
        for row, label in zip(text, labels, strict=True)
        if label != NOT_ASKED
    ]
    surprise = [math.log(sum(math.exp(v) for v in row)) - row[label] for row, label in rows]
    assert found.accuracy == pytest.approx(sum(row.index(max(row)) == label for row, label in rows) / len(rows))
    assert found.perplexity == pytest.approx(math.exp(sum(surprise) / len(rows)), rel=1e-5)
    assert found.loss == pytest.approx(
        sum(loss_of(*one) for one in zip(logits, data.test.y, strict=True)) / 11, rel=1e-5
    )
    assert found.class_accuracy == ()


def test_dp_sgd_clips_the_gradient_of_each_text():
    """One step without noise is the sum of clipped gradients, each of one text alone, over B."""
    data, clip = dataset(), 0.05
    network = fitting(MODEL, data, None)
    flat, out = network.flat.clone(), torch.empty(1, network.dim)
    plan = LocalPlan(lr=1.0, steps=1, batch_size=4, private=DPSGD(sample_rate=1.0, levels=((clip, 0.0),)))
    Cohort(network, [data.train]).train(flat, [0], plan, Rng(0), out)
    network.flat.copy_(flat)
    total = torch.zeros(network.dim, dtype=torch.float64)
    norms = []
    for x, y in zip(data.train.x, data.train.y, strict=True):
        logits, asked = network.module(x[None])[0], y != NOT_ASKED
        loss = -logits[asked].log_softmax(1)[torch.arange(int(asked.sum())), y[asked]].mean()
        gradient = torch.cat(
            [g.reshape(-1) for g in torch.autograd.grad(loss, list(network.module.parameters()))]
        ).double()
        norms.append(float(gradient.norm()))
        total += gradient * min(1.0, clip / norms[-1])
    assert min(norms) > clip
    torch.testing.assert_close(out[0].double(), -total / 4, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("answers", "y"), [("last", None), ("each", torch.zeros(9, dtype=torch.int64))])
def test_a_network_that_answers_other_questions_is_refused(answers, y):
    train = texts() if y is None else texts().replace(y=y)
    with pytest.raises(ConfigError, match="the data ask for .*targets of the data, and answers of the model"):
        fitting(Transformer(width=8, answers=answers), dataset(train=train), None)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (texts().y[:, 1:], r"labels \[N\] or \[N, length\]"),
        (torch.full((9, LENGTH), NOT_ASKED), "a label in each text that is asked for"),
        (texts().y.clamp(min=-3), "expected labels below 7; got -3"),
    ],
)
def test_labels_of_tokens_are_checked(y, message):
    check_dataset("here", dataset())
    with pytest.raises(ConfigError, match=message):
        check_dataset("here", dataset(train=texts().replace(y=y)))


@pytest.fixture
def windows(tmp_path):
    draw = np.random.default_rng(0)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("".join(draw.choice(list("abcde "), 120)).strip() + "." for _ in range(8)))
    return path


def test_windows_ask_for_what_follows_each_character(windows):
    build = load_registry().build
    last, each = (
        build("data", {"name": "text", "file": str(windows), "window": 6, **more}) for more in ({}, {"targets": "each"})
    )
    assert "targets" not in last.spec() and each.spec()["targets"] == "each"
    one, all_of_them = last.load().train, each.load().train
    torch.testing.assert_close(all_of_them.x, one.x)
    torch.testing.assert_close(all_of_them.y[:, -1], one.y)
    torch.testing.assert_close(all_of_them.y[:, :-1].float(), one.x[:, 1:])


def suite(windows, **changes):
    task = {
        "data": {"name": "text", "file": str(windows), "window": 6, "targets": "each"},
        "model": {"name": "transformer", "width": 8, "layers": 1, "answers": "each"},
        "partition": "natural",
    }
    return {
        "task": {**task, **changes.pop("task", {})},
        "clients": {"total": 4, "malicious": 1},
        "training": {"rounds": 2, "batch_size": 8, "lr": 0.5},
        "seeds": 1,
        "matrix": {"attack": ["sign_flip"]},
        **changes,
    }


def test_a_trial_has_a_perplexity_and_no_accuracy_of_classes(windows):
    record, _ = run_trial(lay_out(suite(windows))[1].cells[-1], 0, {})
    result = record["result"]
    assert 1 < result["perplexity"] < 12 and result["class_accuracy"] == [] and result["worst_class_accuracy"] is None
    assert result["minority"] == [] and 0 < result["chance"] < 1


def test_nodes_without_a_server_have_the_mean_of_their_perplexities(windows):
    made = lay_out(suite(windows, architecture="d_psgd", matrix={"attack": ["none"]}))[1].cells[-1]
    result = run_trial(made, 0, {})[0]["result"]
    nodes = [1.5, 4.0, None]
    means = [_mean_of([Evaluation(1.0, 0.5, (), perplexity=one) for one in some]) for some in (nodes[:2], nodes[2:])]
    assert [one.perplexity for one in means] == [2.75, None]
    assert 1 < result["perplexity"] < 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"matrix": {"attack": ["label_flip"]}},
            "label_flip goes by one label of each example; here each token has one",
        ),
        ({"matrix": {"attack": ["labels_idlg"]}}, "labels_idlg goes by one label"),
        (
            {"task": {"partition": "dirichlet"}},
            "dirichlet deals out classes, and these examples have a label of each token",
        ),
        ({"matrix": {"attack": ["dager"]}}, None),
    ],
)
def test_what_needs_one_label_is_refused(windows, changes, message):
    cell = lay_out(suite(windows, **changes))[1].cells[-1]
    found = refusals([cell], (0,))
    assert (message is None) == (not found), found
    assert message is None or message in found[cell.id]
