"""Who sees what: views, threat models, and what may not run together."""

from __future__ import annotations

import pytest
import torch

from fedguard.aggregation import aggregate
from fedguard.architectures.server import Server
from fedguard.bench.running.card import describe_threat
from fedguard.contracts import (
    ClientTransform,
    Exposure,
    PoisonView,
    RuleContext,
    Sight,
    ThreatModel,
    first_met,
    needs_in_words,
)
from fedguard.errors import NotAllowed, NotObservable
from fedguard.registry import load_registry
from fedguard.rng import Rng
from fedguard.visibility import derive_exposure, judge
from tests.table import context, normal

KNOWN = load_registry()
ALL = Sight.HONEST_UPDATES | Sight.OWN_DATA | Sight.MODEL | Sight.RULE


def verdict(defense, attack=None, *, masking="off", root=False, grants=ALL, updates=20, told=4):
    built = KNOWN.build("attack", attack) if attack else None
    mode = KNOWN.get("masking", masking)
    mode = mode(**mode.example)
    exposure = derive_exposure(Server.exposes, mode, root)
    return judge(
        KNOWN.pipeline(defense), built, exposure, ThreatModel(knowledge=tuple(grants.names())), updates, told, mode
    )


def test_a_view_holds_only_what_is_granted():
    view = PoisonView(
        "alie", Sight.OWN_DATA, round=1, n=5, dim=2, malicious=(3, 4), server_lr=1.0, rng=Rng(0), state={},
        honest=torch.ones(3, 2), honest_clients=(0, 1, 2), own=torch.zeros(2, 2), model=torch.ones(2), rule=None,
    )  # fmt: skip
    assert torch.equal(view.benign, torch.zeros(2, 2))
    for name in ("honest", "honest_clients", "model", "rule"):
        with pytest.raises(NotObservable, match=f"alie read '{name}'"):
            getattr(view, name)
    # Nor does it lie anywhere within.
    held = [value for value in (*view.__dict__.values(), *view._values.values()) if isinstance(value, torch.Tensor)]
    assert all(not value.any() for value in held)


def test_a_view_cannot_be_widened():
    view = context(3, 1).restrict("krum", Sight.SUM)
    with pytest.raises(AttributeError, match="a view cannot be changed"):
        view.granted = Sight.EACH_UPDATE
    again = view.restrict("krum", Sight.EACH_UPDATE)
    assert Sight.EACH_UPDATE not in again.granted
    with pytest.raises(NotObservable):
        _ = again.clients


def test_a_view_knows_its_fields():
    with pytest.raises(TypeError, match="RuleContext has no field 'secret'"):
        RuleContext("x", Sight.SUM, secret=1)


def test_seeing_each_update_implies_sums():
    assert Sight.SUM in Sight.EACH_UPDATE.with_implied()
    assert Sight.EACH_UPDATE not in Sight.GROUP_SUMS.with_implied()
    assert first_met((Sight.EACH_UPDATE, Sight.SUM), Sight.GROUP_SUMS) == Sight.SUM
    assert first_met((Sight.ROOT_DATA,), Sight.EACH_UPDATE) is None
    assert needs_in_words((Sight.EACH_UPDATE | Sight.ROOT_DATA, Sight.SUM)) == (
        "each client's update and a clean data set at the server, or else the sum of the updates"
    )


def test_a_threat_model_prints_itself_in_words():
    threat = ThreatModel(knowledge=("own_data", "model"), first_round=3, last_round=9)
    assert describe_threat(threat, 4, 20, threat.grants) == (
        "4 of 20 clients are malicious from round 3 to round 9; "
        "together they see the malicious clients' own data and clean updates and the global model."
    )


def test_masking_forbids_every_rule_that_sees_single_updates():
    for _, cls in load_registry().classes(["defense"]):
        text = cls.name if cls.name in ("mean", "weighted_mean") or _is_rule(cls) else f"{cls.name} >> mean"
        allowed = cls.name in ("mean", "weighted_mean", "server_learning", "crfl") or issubclass(cls, ClientTransform)
        found = verdict(text, masking="full", root=True)
        assert (not found.reasons) == allowed, text
        if not allowed:
            assert "secure_aggregation: full hides it" in found.reasons[0]


def test_masking_in_groups_leaves_rules_over_groups():
    assert verdict("krum", masking="groups").reasons == ()
    assert verdict("krum", masking="groups").rule_sees == Sight.GROUP_SUMS
    assert verdict("fltrust", masking="groups", root=True).reasons != ()


def test_root_data_must_be_there():
    assert "server.root_data" in verdict("fltrust").reasons[0]
    assert verdict("fltrust", root=True).reasons == ()


def test_an_attack_falls_back_to_what_it_is_granted():
    assert verdict("mean", "alie").attack_sees == Sight.HONEST_UPDATES
    assert verdict("mean", "alie", grants=Sight.OWN_DATA).attack_sees == Sight.OWN_DATA
    assert verdict("mean", "alie", masking="full").attack_sees == Sight.OWN_DATA  # nobody can tap what is masked
    refused = verdict("mean", "mimic", grants=Sight.OWN_DATA)
    assert "mimic needs the honest clients' updates; the malicious clients see" in refused.reasons[0]


def test_too_many_malicious_clients_are_a_reason():
    assert "trimmed_mean needs n >= 2f + 1, with f = 10" in verdict("trimmed_mean", told=10).reasons[0]


def test_a_rule_gets_no_more_than_it_declares():
    """weighted_mean declares the sum: the clients behind the rows are not in its view, although the server sees them."""
    from fedguard.contracts import WeightRule

    class Curious(WeightRule):
        name, needs = "curious", (Sight.SUM,)

        def weights(self, gram, context):
            return torch.full((gram.n,), float(len(context.clients)))

    from fedguard.contracts import Pipeline

    with pytest.raises(NotObservable, match="curious read 'clients'"):
        aggregate(Pipeline((Curious(),)), normal(4, 3), context(4, 0))


def test_a_rule_cannot_run_on_what_the_server_does_not_see():
    hidden = RuleContext("server", Sight.SUM, f=1, round=1, rng=Rng(0), state={})
    with pytest.raises(NotAllowed, match="krum needs each client's update"):
        aggregate(KNOWN.pipeline("krum"), normal(7, 3), hidden)


def test_an_inference_attack_has_no_way_to_the_truth():
    """The view holds what the server sees, and never the examples."""
    from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView, Reconstruction
    from tests.inference.scenes import Scene, digits, mlp

    class FromTheFirstLayer(InferenceAttack):
        """x = dW_i / db_i for a single example: exact."""

        name, goal, needs = "from_the_first_layer", "reconstruction", ONE_VECTOR

        def infer(self, view):
            weight, bias = view.gradient[:640].view(10, 64), view.gradient[640:]
            strongest = bias.abs().argmax()
            return Reconstruction((weight[strongest] / bias[strongest]).view(1, *view.shape))

    scene = Scene(mlp(64, 10), (digits(1), digits(1, seed=1)))
    view = scene.view()
    assert torch.allclose(FromTheFirstLayer().infer(view).x, scene.parts[0].x, atol=1e-5)
    masked = view.restrict("curious", Sight.SUM | Sight.MODEL)
    with pytest.raises(NotObservable, match="curious read 'updates'"):
        masked.updates  # noqa: B018
    assert torch.equal(masked.target, masked.aggregates[-1]), "what it attacks is then the mean"
    fields = {name for cls in InferenceView.__mro__ for name in (*vars(cls), *vars(cls).get("__annotations__", {}))}
    assert not {"truth", "examples", "x", "y", "data", "task"} & fields
    with pytest.raises(TypeError, match="has no field 'truth'"):
        view.restrict("curious", Sight.EACH_UPDATE, truth=scene.parts[0].x)
    assert all(parameter.abs().sum() == 0 for parameter in view.module.parameters()), "not even the module's weights"


def test_exposure_under_masking():
    full = derive_exposure(Server.exposes, KNOWN.get("masking", "full"))
    assert full == Exposure(
        Sight.SUM | Sight.MODEL | Sight.MASKED | Sight.TRANSCRIPT, Sight.OWN_DATA | Sight.MODEL | Sight.RULE
    )


def _is_rule(cls) -> bool:
    from fedguard.contracts import AggregationRule

    return issubclass(cls, AggregationRule)
