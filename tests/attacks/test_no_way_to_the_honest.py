"""From what malicious clients are handed while they craft, no way leads to what they are not granted: not through their copy of the
server's rule, its state, shared memory, closures or random streams.

The walk is that of `tests/inference/test_no_way_to_the_truth.py`, which is shown there to find what is hidden.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fedguard.architectures.malicious import MaliciousClients
from fedguard.architectures.server import Server
from fedguard.bench.running.trial import set_up
from fedguard.bench.running.workbench import Workbench
from fedguard.config import build_cell
from fedguard.config.schema import CellConfig
from fedguard.contracts import PoisonAttack, Sight
from fedguard.registry import load_registry
from fedguard.rng import Rng
from tests.inference.test_no_way_to_the_truth import holds, reachable

SEED = 4
OWN, RULE, MODEL, HONEST = Sight.OWN_DATA, Sight.RULE, Sight.MODEL, Sight.HONEST_UPDATES
SIZES = {
    "clients": {"total": 6, "malicious": 2},
    "training": {"algorithm": "fedsgd", "rounds": 3, "batch_size": 8, "lr": 0.1},
    "server": {"root_data": 50},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spy(PoisonAttack):
    """Sends what it would honestly send, and looks at all that it can reach."""

    name = "spy"
    needs = (Sight.OWN_DATA,)

    def craft(self, view):
        self.look(view)
        return view.own if OWN in view.granted else torch.zeros(view.f, view.dim)


@dataclasses.dataclass(frozen=True, eq=False)
class Truth:
    """What was in the last round: updates of this round and all before, what the rule carries, the trial's task."""

    objects: list
    honest: list
    carried: list
    model: torch.Tensor
    view: object
    task: object


def spied(needs, monkeypatch, defense="foolsgold", knowledge=None, **changes) -> Truth:
    """One trial in which a spy of these needs looks around in the last round."""
    found, honest, carried = {}, [], []
    crafting = MaliciousClients.craft

    def recording(self, model, round, sides, known_rule, asked=()):
        honest.append(sides.honest_rows.clone())
        carried[:] = [tensor for state in known_rule.args[3] for tensor in state.values()]
        found["model"] = model.clone()
        crafting(self, model, round, sides, known_rule)

    def look(self, view):
        if view.round == 3:
            found.update(view=view, objects=reachable(view))

    monkeypatch.setattr(MaliciousClients, "craft", recording)
    grants = {"knowledge": list((knowledge or needs).names())}
    cell = build_cell(
        CellConfig.model_validate({**SIZES, "defense": defense, "attack": "zeros", "threat": grants, **changes}),
        load_registry(),
    )
    spy = type("Spying", (Spy,), {"needs": (needs,), "look": look})()
    cell = cell.with_parts(attack=spy)
    task = Workbench().task(cell, SEED)
    setup = set_up(cell, SEED, task).with_parts(attack_sees=needs)
    list(Server().run(setup))
    return Truth(found["objects"], honest, carried, found["model"], found["view"], task)


STATEFUL = ["foolsgold", "fl_detector", "centered_clipping", "fedseca", "adaptive_clipping >> mean"]
OTHERS = ["zeno", "fltrust", "crfl", "deepsight", "weighted_mean", "nnm >> krum"]


@pytest.mark.parametrize("defense", [*STATEFUL, *OTHERS])
def test_the_copy_of_the_rule_holds_nothing_of_the_honest_clients(defense, monkeypatch):
    truth = spied(OWN | RULE, monkeypatch, defense)
    assert (defense in STATEFUL) == bool(truth.carried)
    sums = [torch.stack(truth.honest).sum(0), truth.honest[0] + truth.honest[1]]
    floats = [tensor for tensor in truth.carried if tensor.is_floating_point() and tensor.numel() > 1]
    assert not holds(truth.objects, *[row for one in (*truth.honest, *sums) for row in one])
    assert not holds(truth.objects, truth.model, *[row for one in floats for row in one.reshape(-1, one.shape[-1])])
    assert not any(id(tensor) in {id(one) for one in truth.objects} for tensor in truth.carried)
    data = [row for part in (*truth.task.parts, truth.task.root) for row in part.x]
    assert not holds(truth.objects, *data, *(part.y for part in truth.task.parts))
    assert truth.view.rule(torch.ones(6, truth.view.dim)).isfinite().all()  # and it still answers


@pytest.mark.parametrize(
    "needs", [OWN, OWN | MODEL, Sight.NOTHING, RULE, OWN | MODEL | RULE, HONEST, HONEST | RULE | MODEL]
)
@pytest.mark.parametrize("protocol", [{}, {"secure_aggregation": {"groups": 2}}])
def test_what_is_not_granted_is_not_there(needs, protocol, monkeypatch):
    if protocol and HONEST in needs:
        return  # which masks hide
    truth = spied(needs, monkeypatch, "centered_clipping", protocol=protocol)
    rows = [row for one in truth.honest for row in one]
    assert holds(truth.objects, *truth.honest[-1]) == (HONEST in needs)
    assert HONEST in needs or not holds(truth.objects, *rows)
    assert holds(truth.objects, truth.model) == (MODEL in needs)
    assert not holds(truth.objects, *(row for part in truth.task.parts for row in part.x))


def test_who_sees_the_honest_updates_in_every_round_has_what_the_rule_carries(monkeypatch):
    truth = spied(HONEST | RULE, monkeypatch)
    assert len(truth.carried) == 2
    assert holds(truth.objects, *truth.carried)


@pytest.mark.parametrize("needs", [OWN | RULE, HONEST | RULE | MODEL | OWN])
def test_the_seed_of_a_trial_is_not_handed_over(needs, monkeypatch):
    """Who has it draws the server's noise, the honest clients' batches and the choice of clients again."""
    truth = spied(needs, monkeypatch, "weak_dp")
    assert [one for one in truth.objects if isinstance(one, Rng)]
    assert not [one for one in truth.objects if isinstance(one, Rng) and one.seed == SEED]
