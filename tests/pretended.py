"""Runs the engines on a device that is only pretended, and tells what was on a wrong one: ``python -m tests.pretended``.

torch's fake tensors hold shapes and a device, but no values, and refuse every operation on tensors of two devices, as a GPU
does. The device goes by a name of its own, because torch without CUDA does not differentiate on "cuda". It is registered
for the whole process, so the tests start this as a process of its own.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch._subclasses.fake_tensor as fake
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from fedguard.contracts import DPSGD, LocalPlan
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.tasks.cohort import Cohort
from fedguard.tasks.compute import USUAL_MEMORY, Compute
from fedguard.tasks.engines.by_example import _FOUND_RIGHT
from fedguard.tasks.network import FlatNetwork
from tests.tasks.test_cohort import altered, deal

DEVICE = "pretended"
#: Parts of the names of operations that cost something.
HEAVY = ("mm", "bmm", "conv", "softmax", "index_add", "index_select")

USUAL = LocalPlan(lr=0.1, batch_size=8, epochs=1, momentum=0.9)


@dataclass(frozen=True)
class Case:
    """A network, its clients, and how they train; ``engine`` is the name of the class that has to do it."""

    model: str
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    engine: str
    plan: LocalPlan = USUAL
    altered: str = "prox and corrections"


DENSE = Case("mlp(hidden=(20, 7))", (1, 8, 8), (5, 40, 17), "DenseEngine")
MODULE = Case("resnet20(width=2, groups=1)", (3, 8, 8), (9, 1), "ModuleEngine")
PRIVATE = LocalPlan(lr=0.1, batch_size=5, epochs=1, momentum=0.9, private=DPSGD(sample_rate=0.25, levels=((1.0, 1.0),)))
PLAIN = LocalPlan(lr=0.1, batch_size=8, epochs=1)
ALTERED = replace(
    PLAIN,
    adjust=lambda now, start, gradient: gradient + now - start + torch.ones(len(now)),
    project=lambda now, start: (now - start).clamp(max=torch.ones(len(now))) + start,
)
CASES = {
    "dense, delta form": DENSE,
    "dense, delta form, narrow": replace(DENSE, model="softmax"),
    "dense, delta form, one step": replace(DENSE, plan=LocalPlan(lr=1.0, batch_size=3, steps=1)),
    "dense, delta form, few examples used": replace(DENSE, sizes=(60, 50), plan=replace(PLAIN, epochs=None, steps=2)),
    "dense, input layer": replace(DENSE, sizes=(5, 20, 70)),
    "dense, no momentum": replace(DENSE, plan=PLAIN, altered=""),
    "convolutions in blocks": Case("lenet5", (1, 16, 16), (5, 9), "ConvEngine"),
    "convolutions as they are": Case("fedavg_cnn", (1, 12, 12), (5, 9), "ConvEngine"),
    "module": MODULE,
    "module, no momentum": replace(MODULE, plan=PLAIN),
    "module, texts": Case("transformer(width=8, heads=2, layers=1)", (6,), (5, 9), "ModuleEngine"),
    "module, steps altered by the client": replace(DENSE, plan=ALTERED, altered="", engine="ModuleEngine"),
    "private": replace(DENSE, sizes=(5, 40), plan=PRIVATE, altered="", engine="PrivateEngine"),
}


def planted_corrections(cohort: Cohort) -> None:
    """The corrections of the clients stay in main memory."""
    cohort._move_plan = lambda plan, clients: plan


def planted_index(cohort: Cohort) -> None:
    """An engine keeps a table of its own in main memory."""
    form = cohort._engine._forms[0]
    form._spread = torch.zeros(len(form._spread), dtype=torch.int64)


def planted_labels(cohort: Cohort) -> None:
    """The labels stay in main memory."""
    cohort._engine._parts = [part.replace(y=part.y.cpu()) for part in cohort._engine._parts]


def planted_home(cohort: Cohort) -> None:
    """Everything is computed in main memory after all."""
    cohort._device = torch.device("cpu")
    cohort._engine = type(cohort._engine)(cohort._network.widths, HOME, Compute())


HOME = deal(DENSE.sizes, DENSE.shape)
FAULTS = {
    "corrections": ("dense, delta form", planted_corrections),
    "index": ("convolutions in blocks", planted_index),
    "labels": ("module", planted_labels),
    "home": ("dense, delta form", planted_home),
}


class Places(TorchDispatchMode):
    """Notes the devices on which costly operations are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        first = made[0] if isinstance(made, tuple) else made
        if any(part in func.name() for part in HEAVY) and isinstance(first, torch.Tensor):
            self.seen.add(first.device.type)
        return made


def outcome(case: Case, fault: Callable[[Cohort], None] = lambda cohort: None, memory: int = USUAL_MEMORY) -> str:
    """What went wrong, or "right"."""
    with fake.FakeTensorMode(allow_non_fake_inputs=True):
        classes = 12 if len(case.shape) == 1 else 10
        parts = deal(case.sizes, case.shape, classes)
        network = FlatNetwork(
            load_registry().build("model", case.model), case.shape, classes, Rng(0), Compute(DEVICE, memory)
        )
        _FOUND_RIGHT[network.module] = sys.maxsize  # DP-SGD judges a network by numbers, which nothing here has
        cohort = Cohort(network, parts)
        plan = altered(case.plan, network.dim, case.altered)
        model, out = network.flat.clone(), torch.empty(len(parts), network.dim)
        fault(cohort)
        with Places() as places:
            cohort.train(model, range(len(parts)), plan, Rng(1), out)
            evaluated = network.logits(model, parts[0].x), network(model, parts[0].x)
        engine = cohort._engine if case.engine == type(cohort._engine).__name__ else vars(cohort).get("_private")
        engine = engine or cohort._general
        if type(engine).__name__ != case.engine:
            return f"trained by {type(engine).__name__}"
        if {one.device.type for one in (out, *evaluated, network.flat)} != {"cpu"}:
            return "something has not come back"
        return "right" if places.seen == {DEVICE} else f"computed on {sorted(places.seen)}"


def told(case: Case, fault: Callable[[Cohort], None] = lambda cohort: None, memory: int = USUAL_MEMORY) -> str:
    try:
        return outcome(case, fault, memory)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor", UserWarning)
    fake.CONSTANT_NUMEL_LIMIT = -1  # small tensors would be computed for real, which nobody can on this device
    _setup_privateuseone_for_python_backend(DEVICE)
    found = {name: told(case) for name, case in CASES.items()}
    found |= {f"planted {name}": told(CASES[case], fault) for name, (case, fault) in FAULTS.items()}
    # Updates of one client or two at a time.
    found["in slices"] = told(CASES["dense, delta form"], memory=4 * 2 * 1500)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
