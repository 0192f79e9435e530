"""A pretrained encoder with low-rank adapters, as peft makes it, trains as in a plain loop. `test_frozen` is the fast sibling."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.contracts import Dataset, Examples, LocalPlan, Model
from fedguard.contracts.tasks import Tokens
from fedguard.rng import Rng
from fedguard.tasks.classification import fitting
from fedguard.tasks.cohort import Cohort, schedule

WHY = "is not installed (pip install 'fedguard[language]')"
transformers = pytest.importorskip("transformers", reason=f"transformers {WHY}")
peft = pytest.importorskip("peft", reason=f"peft {WHY}")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of a name that peft reads

VOCABULARY, LENGTH, CLASSES, WIDTH, RANK, LAYERS = 50, 8, 3, 16, 2, 2
TRAINED = LAYERS * 2 * (RANK * WIDTH * 2) + WIDTH * CLASSES + CLASSES


class Classifier(nn.Module):
    """As in docs/partitions.md, but for an encoder that is drawn."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": 32}
        none = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
        config = transformers.BertConfig(vocab_size=VOCABULARY, num_labels=CLASSES, **sizes, **none)
        encoder = transformers.AutoModelForSequenceClassification.from_config(config)
        self.encoder = peft.get_peft_model(encoder, peft.LoraConfig(r=RANK, target_modules=["query", "value"]))
        for name, parameter in self.encoder.named_parameters():
            parameter.requires_grad_("lora_" in name or ".classifier." in name)

    def forward(self, x):
        return self.encoder(input_ids=x, attention_mask=(x != 0).long()).logits


class Given(Model):
    name = "given"
    make = Classifier

    def build(self, shape, classes):
        return self.make()


class GivenWithDropout(Given):
    make = lambda self: Classifier(0.1)  # noqa: E731


def texts(n, seed) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(1, VOCABULARY, (n, LENGTH), generator=draw)
    x[::2, 5:] = 0
    return Examples(x.float(), torch.randint(CLASSES, (n,), generator=draw))


def dataset() -> Dataset:
    return Dataset(texts(9, 0), texts(9, 1), CLASSES, (0.0, VOCABULARY - 1.0), Tokens(VOCABULARY, 0))


def test_adapters_train_as_in_a_plain_loop_and_the_encoder_stays():
    network, parts = fitting(Given(), dataset(), None), [texts(n, seed=n) for n in (10, 7)]
    plan, out = LocalPlan(lr=0.5, batch_size=4, epochs=2, momentum=0.5), torch.empty(2, TRAINED)
    frozen = {n: p.detach().clone() for n, p in network.module.named_parameters() if not p.requires_grad}
    assert network.dim == TRAINED
    Cohort(network, parts).train(network.flat.clone(), [0, 1], plan, Rng(5), out)
    for client, (part, update) in enumerate(zip(parts, out, strict=True)):
        module = copy.deepcopy(network.module)
        trained = [p for p in module.parameters() if p.requires_grad]
        before = torch.cat([p.detach().reshape(-1) for p in trained])
        sgd = torch.optim.SGD(trained, lr=plan.lr, momentum=plan.momentum)
        for batch in schedule(plan, len(part), Rng(5).child("client", client).numpy()):
            rows = torch.from_numpy(batch[batch >= 0])
            sgd.zero_grad()
            cross_entropy(module(part.x[rows].long()), part.y[rows]).backward()
            sgd.step()
        after = torch.cat([p.detach().reshape(-1) for p in trained])
        torch.testing.assert_close(update, after - before, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(p, frozen[n]) for n, p in network.module.named_parameters() if n in frozen)


def test_dropout_is_refused():
    with pytest.raises(Exception, match="Leave out Dropout"):
        fitting(GivenWithDropout(), dataset(), None)
