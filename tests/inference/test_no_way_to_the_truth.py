"""From what an attack is handed no way leads to what it is to find: not through attributes, closures, graphs or storage.

A walker follows every reference from a view and collects the memory of all tensors and arrays. The truth, as bytes, must not
be in it. What modules and classes hold is not followed: code is public.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import gc
import sys
import types
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedguard.bench.running.trial import run_trial
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import (
    Examples,
    InferenceAttack,
    Labels,
    LocalPlan,
    Membership,
    Property,
    Reconstruction,
    Sight,
)
from fedguard.inference import inference_view
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.inference.scenes import Scene, digits, flat, mlp

#: More objects than this are a walk that has lost its way into the interpreter.
MOST = 100_000


def reachable(*roots):
    """Every object that can be got at from these, modules, classes and their dictionaries aside."""
    public = {id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)}
    queue, found = list(roots), {}
    while queue:
        one = queue.pop()
        if id(one) in found or id(one) in public or isinstance(one, type | types.ModuleType | types.FrameType):
            continue
        found[id(one)] = one
        assert len(found) < MOST
        queue += gc.get_referents(one)
        if isinstance(one, weakref.ref):
            queue.append(one())
        elif isinstance(one, torch.Tensor):
            queue += [one.grad if one.is_leaf else None, one.grad_fn]
        elif hasattr(one, "next_functions"):  # a node of autograd's graph
            queue += [node for node, _ in one.next_functions]
            queue += [getattr(one, name) for name in dir(one) if name.startswith("_saved_") or name == "variable"]
    return list(found.values())


def memory(objects):
    """The bytes of every tensor's whole storage, of every array's, and of every list of numbers."""
    found = {}
    for one in objects:
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            found[storage.data_ptr()] = bytes(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())
        elif isinstance(one, np.ndarray):
            found[id(one)] = one.tobytes()
            while isinstance(one.base, np.ndarray):
                one = one.base
                found[id(one)] = one.tobytes()
        elif isinstance(one, bytes | bytearray | array.array):
            found[id(one)] = bytes(one)
        elif isinstance(one, list | tuple) and len(one) > 1:
            if all(isinstance(value, int) and abs(value) < 2**63 for value in one):
                found[id(one)] = np.array(one, np.int64).tobytes()
            elif all(isinstance(value, float) for value in one):
                found[id(one)] = np.array(one, np.float32).tobytes()
    return list(found.values())


def holds(objects, *secrets):
    """Whether the bytes of any of these tensors, as they are, negated or in float64, stand anywhere in memory."""
    blocks = memory(objects)
    words = {block[at : at + 8] for block in blocks for at in range(len(block) - 7)}
    for secret in secrets:
        forms = [secret, secret.double()] + ([-secret, -secret.double()] if secret.is_floating_point() else [])
        for form in forms:
            needle = form.contiguous().numpy().tobytes()
            middle = needle[len(needle) // 2 - 4 :][:8]
            # where not even eight bytes of it are, which is soon known, it is not
            if (len(needle) < 8 or middle in words) and any(needle in block for block in blocks):
                return True
    return False


def rows(parts):
    """Each example's input."""
    return [x for part in parts for x in part.x]


# The walker finds what is hidden: each of these is a leak that was planted.

SECRET = torch.rand(64, generator=torch.Generator().manual_seed(0))


def in_a_closure():
    secret = SECRET.clone()
    return lambda: secret


def in_a_default():
    def innocent(hidden=SECRET.clone()):  # noqa: B008
        return None

    return innocent


def in_a_keyword_default():
    def innocent(*, hidden=SECRET.clone()):  # noqa: B008
        return None

    return innocent


def in_a_bound_method():
    class Holder:
        def __init__(self):
            self.secret = SECRET.clone()

        def innocent(self):
            return None

    return Holder().innocent


def in_slots():
    class Holder:
        __slots__ = ("secret",)

    holder = Holder()
    holder.secret = SECRET.clone()
    return holder


def in_a_cache():
    class Key:
        pass

    @functools.lru_cache
    def cached(key):
        return SECRET.clone()

    cached(Key())
    return cached


def in_a_generator():
    def counting():
        secret = SECRET.clone()
        yield 1
        yield secret

    running = counting()
    next(running)
    return running


def in_a_buffer():
    module = nn.Linear(2, 2)
    module.register_buffer("statistics", SECRET.clone())
    return module


def in_a_hook():
    module, secret = nn.Linear(2, 2), SECRET.clone()
    module.register_forward_hook(lambda *call: secret)
    return module


def in_a_gradient():
    module = nn.Linear(8, 8, bias=False)
    module.weight.grad = SECRET.clone().view(8, 8)
    return module


def in_the_graph():
    weight = torch.ones(64, requires_grad=True)
    return (weight * SECRET.clone()).sum() * 2


def in_the_graph_under_a_parameter():
    leaf = SECRET.clone().requires_grad_()
    return leaf.sum() * 2


def in_an_attribute_of_a_tensor():
    tensor = torch.zeros(2)
    tensor.source = SECRET.clone()
    return tensor


KEPT = []


def behind_a_weak_reference():
    KEPT.append(SECRET.clone())
    return weakref.ref(KEPT[-1])


PLANTED = [
    in_a_closure,
    in_a_default,
    in_a_keyword_default,
    in_a_bound_method,
    in_slots,
    in_a_cache,
    in_a_generator,
    in_a_buffer,
    in_a_hook,
    in_a_gradient,
    in_the_graph,
    in_the_graph_under_a_parameter,
    in_an_attribute_of_a_tensor,
    behind_a_weak_reference,
    lambda: functools.partial(print, hidden=SECRET.clone()),
    lambda: torch.cat([torch.zeros(100), SECRET])[:100],  # the rest of the storage is there too
    lambda: {"deep": [({"er": np.concatenate([np.zeros(9, np.float32), SECRET.numpy()])[:9]},)]},
    lambda: SECRET.tolist(),
    lambda: (-SECRET).double(),
    lambda: SECRET.numpy().tobytes(),
    lambda: Examples(SECRET.view(1, 1, 8, 8).clone(), torch.zeros(1)),
]


@pytest.mark.parametrize("planted", PLANTED)
def test_the_walker_finds_what_is_hidden(planted):
    hidden = planted()
    assert holds(reachable({"view": [hidden]}), SECRET)
    assert not holds(reachable({"view": [hidden]}), torch.rand(64, generator=torch.Generator().manual_seed(1)))


def test_labels_are_found_as_numbers_too():
    labels = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    assert holds(reachable([labels.tolist()]), labels)
    assert holds(reachable(lambda: labels), labels)


# Views, as they are made of plain pieces.

CLIENTS = tuple(digits(8, seed) for seed in (0, 1, 2))


def scene(**changes):
    return Scene(mlp(64, 16, 10), CLIENTS, **changes)


def test_a_view_of_one_update_leads_nowhere():
    objects = reachable(scene().view())
    assert not holds(objects, *rows(CLIENTS), *(part.y for part in CLIENTS))
    assert holds(objects, scene().sent()[0])  # the walk is one that finds what is there


def test_a_view_of_the_mean_leads_to_no_update():
    hidden = scene(sees=Sight.SUM | Sight.MODEL)
    objects = reachable(hidden.view())
    sent = hidden.sent()
    assert not holds(objects, *rows(CLIENTS), *sent)
    assert holds(objects, sent.mean(0))


def test_a_view_of_noisy_updates_leads_to_no_clean_one():
    clean = scene().sent()
    noisy = clean + 0.1 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    objects = reachable(scene().view(updates=noisy))
    assert not holds(objects, *clean, clean.mean(0), *rows(CLIENTS))


def test_labels_and_root_data_are_there_only_where_they_are_granted():
    root, labels = digits(8, seed=9), CLIENTS[0].y
    told = reachable(scene(sees=Sight.EACH_UPDATE | Sight.MODEL | Sight.ROOT_DATA).view(root=root, labels=labels))
    assert holds(told, root.x[0])
    assert holds(told, labels)
    untold = reachable(scene().view(root=root))
    assert not holds(untold, *root.x, root.y, labels)


def test_gradients_that_lie_in_the_module_do_not_come_along():
    """`loss.backward()` leaves them there, and they are the victim's."""
    secret = scene()
    batch = CLIENTS[0]
    cross_entropy(secret.module(batch.x), batch.y).backward()
    left = [parameter.grad.flatten() for parameter in secret.module.parameters()]
    assert holds(reachable(secret.module), *left)
    updates = torch.zeros(3, len(flat(secret.module)))
    assert not holds(reachable(secret.view(updates=updates)), *left)


@pytest.mark.parametrize("leak", ["adapt", "train"])
def test_a_view_whose_closures_hold_the_truth_is_told(leak):
    kept = CLIENTS[0]
    view = scene().view(**{leak: lambda *given: kept})
    assert holds(reachable(view), *kept.x)


# Views, as the core makes them in a trial.

SEEN = []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeker(InferenceAttack):
    """Keeps all that it is handed, and claims nothing of worth."""

    name, goal, needs = "seeker", "reconstruction", (Sight.EACH_UPDATE | Sight.MODEL,)

    def tamper(self, view):
        SEEN.append(view)
        return view.models[-1]

    def infer(self, view):
        SEEN.append(view)
        claims = {
            "reconstruction": lambda: Reconstruction(torch.zeros(1, *view.shape)),
            "labels": lambda: Labels(torch.zeros(1, dtype=torch.int64)),
            "membership": lambda: Membership(torch.arange(len(view.candidates)).double()),
            "property": lambda: Property(0.0),
        }
        return claims[self.goal]()

    def holds(self, examples):
        return int(examples.y[0]) == 3


SIZES = {
    "clients": {"total": 6},
    "training": {"algorithm": "fedsgd", "rounds": 2, "batch_size": 8, "lr": 0.1},
    "observer": {"round": 2, "victims": 3},
}


def attacked(seed=0, *, attributes=None, **changes):
    """Everything that a Seeker was handed in one trial, and the views; the truth is the trial's task, dealt again."""
    SEEN.clear()
    cell = build_cell(CellConfig.model_validate({**SIZES, **changes}), load_registry())
    spy = type("Spy", (Seeker,), dict(attributes or {}))()
    run_trial(cell.with_parts(inference=spy), seed, {})
    assert SEEN
    return reachable(spy, *SEEN), list(SEEN), Workbench().task(cell, seed)


def examples_of(task):
    return [row for part in task.parts for row in part.x]


MASKED = (Sight.SUM | Sight.MODEL,)


@pytest.mark.parametrize(
    ("attributes", "changes"),
    [
        ({}, {}),
        ({"goal": "labels"}, {}),
        ({"watches": "training"}, {"training": {"algorithm": "fedavg", "rounds": 2, "batch_size": 16}}),
        ({"needs": MASKED}, {"protocol": {"secure_aggregation": "full"}}),
        ({"needs": MASKED}, {"protocol": {"secure_aggregation": {"groups": 2}}}),
        ({"active": True}, {"observer": {**SIZES["observer"], "server": "malicious"}}),
        ({"goal": "property", "watches": "training"}, {}),
        ({}, {"defense": "noise >> mean", "task": {"model": "mlp(hidden=(16,))"}}),
        ({}, {"defense": "client_clipping >> mean"}),
        ({}, {"protocol": {"privacy": {"kind": "record", "noise_multiplier": 1.0, "sample_rate": 0.1}}}),
    ],
)
def test_what_an_attack_is_handed_in_a_trial_leads_to_no_example(attributes, changes):
    objects, views, task = attacked(attributes=attributes, **changes)
    assert not holds(objects, *examples_of(task), *(part.y for part in task.parts))
    assert holds(objects, views[-1].model)
    assert any(one is views[-1].train for one in objects)
    assert any(one is views[-1].train.initial for one in objects)  # the walk went into the shadows


@pytest.mark.parametrize(
    ("system", "masked", "reads"),
    [
        ({"name": "d_psgd", "graph": "ring"}, False, 2),
        ({"name": "d_psgd", "graph": "ring", "masks": 20}, True, 0),
        ({"name": "all_reduce", "topology": "all_to_all"}, False, 5),
        ({"name": "all_reduce", "masks": 20}, True, 0),
    ],
)
def test_a_node_is_handed_what_it_solved_for_and_nothing_of_others(system, masked, reads):
    """No example, not of itself either; and no vector near the update of a node that its messages do not determine."""
    training = {"algorithm": "fedavg", "rounds": 2, "local_steps": 1, "batch_size": 8, "lr": 0.1}
    observer = {"round": 1, "victims": 6, "seat": "nodes"}
    attributes = {"needs": MASKED} if masked else {}
    objects, views, task = attacked(attributes=attributes, training=training, observer=observer, architecture=system)
    assert not holds(objects, *examples_of(task), *(part.y for part in task.parts))
    assert holds(objects, views[-1].model)
    model = task.initial_model(Rng(0).child("model"))
    plan = LocalPlan(lr=0.1, steps=1, batch_size=8)
    updates = task.local_updates(model, range(6), plan, Rng(0).child("round", 1), torch.empty(6, task.dim)).clone()
    vectors = [
        one.view(-1, task.dim) for one in objects if isinstance(one, torch.Tensor) and one.numel() % task.dim == 0
    ]
    found = {
        client
        for client, update in enumerate(updates)
        for rows in vectors
        if rows.numel() and ((rows - update).norm(dim=1).min() < 0.01 * update.norm())
    }
    assert len(found) == reads == (0 if masked else len(views))


def test_root_data_bring_nothing_of_the_clients_along():
    needs = (Sight.EACH_UPDATE | Sight.MODEL | Sight.ROOT_DATA,)
    objects, views, task = attacked(attributes={"needs": needs}, server={"root_data": 50})
    assert holds(objects, task.root.x)
    assert not holds(objects, *examples_of(task))


def test_root_data_are_not_there_without_need():
    objects, _, task = attacked(server={"root_data": 50})
    assert not holds(objects, *task.root.x)


def test_candidates_are_without_the_answer():
    attributes = {"goal": "membership", "watches": "model", "needs": (Sight.MODEL,)}
    objects, (view,), task = attacked(attributes=attributes, observer={"candidates": 60})
    inside = {row.numpy().tobytes() for row in examples_of(task)}
    members = torch.tensor([row.numpy().tobytes() in inside for row in view.candidates.x])
    assert 60 <= int(members.sum()) < len(members) == 120
    for answer in (members, ~members, members.long(), members.float(), members.nonzero()[:, 0]):
        assert not holds(objects, answer)


def test_no_update_is_there_without_its_noise():
    """The same trial without noise sends the clean updates of its first round."""
    first = {"observer": {"round": 1, "victims": 3}}
    clean = [view.target.clone() for view in attacked(**first)[1]]
    objects, views, _ = attacked(defense="noise(scale=0.01) >> mean", **first)
    assert len(clean) == len(views) == 3
    for before, view in zip(clean, views, strict=True):
        distance = (view.target - before).norm() / before.norm()
        assert distance == pytest.approx(0.01, rel=0.2)  # the same client's
    assert not holds(objects, *clean)


def test_under_masks_no_single_update_is_there():
    first = {"observer": {"round": 1, "victims": 6}}
    single = [view.target.clone() for view in attacked(**first)[1]]
    objects, (view,), _ = attacked(attributes={"needs": MASKED}, protocol={"secure_aggregation": "full"}, **first)
    assert len(single) == 6
    assert (view.target - torch.stack(single).mean(0)).abs().max() < 1e-3  # it is their mean, but for rounding
    assert not holds(objects, *single)


def test_a_view_is_detached_from_the_graph_that_made_its_updates():
    """An update with its graph would bring the batch along, as what autograd saved of it."""
    module, batch = mlp(64, 16, 10), CLIENTS[0]
    parts = torch.autograd.grad(cross_entropy(module(batch.x), batch.y), list(module.parameters()), create_graph=True)
    update = -torch.cat([part.flatten() for part in parts])
    assert holds(reachable(update), batch.x)
    model = flat(module)
    view = inference_view(
        "the server",
        Sight.EACH_UPDATE | Sight.MODEL,
        module,
        models=torch.stack([model, model + update]),
        updates=update[None, None],
        shape=(1, 8, 8),
        classes=10,
        plan=LocalPlan(lr=1.0, steps=1),
        counts=(8,),
    )
    assert not holds(reachable(view), *batch.x)


def test_the_seed_of_a_trial_is_not_handed_over():
    """Who has it draws the clients' noise, order and batches again."""
    seed = 4
    objects, views, _ = attacked(seed)
    assert all(view.rng.torch().initial_seed() for view in views)
    assert not [one for one in objects if isinstance(one, Rng) and one.seed == seed]
