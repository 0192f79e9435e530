"""The one table: a row puts a defense or an attack through its whole contract suite."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fedguard.aggregation import Aggregate, aggregate
from fedguard.contracts import Pipeline, RuleContext, Sight
from fedguard.errors import PreconditionError
from fedguard.kernels import LARGEST
from fedguard.registry import load_registry
from fedguard.rng import Rng


@dataclass(frozen=True)
class Defense:
    """A pipeline and the laws it keeps.

    permutation: the order of the updates does not matter, at exact ties neither (rules that deal rows out at random keep this
    in distribution only).
    translation: R(x + c) = R(x) + c.        scale: R(s x) = s R(x) for s > 0.
    mean_at_zero: for f = 0 it is the mean.  hull: the result lies between the smallest and the largest value.
    resists: f updates far away do not take the result along; None where that depends on their direction.
    """

    text: str
    permutation: bool = True
    translation: bool = True
    scale: bool = True
    mean_at_zero: bool = False
    hull: bool = True
    resists: bool | None = True


DEFENSES = [
    Defense("mean", mean_at_zero=True, resists=False),
    Defense("weighted_mean", mean_at_zero=True, resists=False),
    Defense("capped_mean", mean_at_zero=True, resists=False),  # of equal claims
    Defense("weighted_median"),
    Defense("weighted_trimmed_mean(share=0.4)"),
    Defense("clip >> capped_mean(share=0.4, clients=1)", translation=False, hull=False),
    Defense("inverse_variance", mean_at_zero=True, resists=False),  # of equal noise
    Defense("median"),
    Defense("trimmed_mean", mean_at_zero=True),
    Defense("krum"),
    Defense("multi_krum", mean_at_zero=True),
    Defense("geometric_median"),
    Defense("centered_clipping", translation=False, hull=False),
    Defense("centered_clipping(tau=3, steps=5)", translation=False, scale=False, hull=False),
    Defense("fltrust", translation=False, hull=False),
    Defense("meamed", mean_at_zero=True),
    Defense("phocas", mean_at_zero=True),
    Defense("sign_sgd", translation=False, hull=False),
    Defense("sign_sgd(scale=0.1)", translation=False, scale=False, hull=False),
    Defense("rlr", translation=False, hull=False, resists=False),  # it bounds no length
    Defense("sign_guard", translation=False, hull=False),
    Defense("lasa", translation=False, hull=False),
    Defense("rflbat(references=1)", translation=False),
    Defense("fedseca", translation=False, hull=False),
    Defense("flame", translation=False, hull=False),  # scale: beside a model of zeros
    Defense("flame(of='updates')", translation=False, hull=False),
    Defense("deepsight", translation=False, scale=False, hull=False),  # probabilities are not linear in the update
    Defense("deepsight(cluster=2, one=False)", translation=False, scale=False, hull=False),
    Defense("fl_detector", mean_at_zero=True, resists=False),  # of its first round, a mean
    Defense("bulyan", mean_at_zero=True),
    Defense("mda", mean_at_zero=True),
    Defense("smea", mean_at_zero=True),
    Defense("nna", permutation=False, mean_at_zero=True),  # around the node's own row, as the rules that follow
    Defense("clipped_gossip", permutation=False, mean_at_zero=True),
    Defense("cs_plus", permutation=False, mean_at_zero=True),
    Defense("bridge", permutation=False, mean_at_zero=True),
    Defense("ubar", permutation=False),
    Defense("monna", permutation=False, mean_at_zero=True),  # whose update it trusts depends on the row
    Defense("caf", mean_at_zero=True),
    Defense("cge", translation=False, mean_at_zero=True),
    Defense("huber"),
    Defense("huber(threshold=2)", scale=False),
    Defense("fedpg_br", mean_at_zero=True),
    Defense("fedpg_br(sigma=1)", scale=False),
    Defense("dnc", mean_at_zero=True),
    Defense("dnc(sample=2, iterations=3, filter_factor=1.5)", mean_at_zero=True),
    Defense("foolsgold", translation=False, resists=None),  # a lone attacker gains, Sybils lose
    Defense("cosine_clustering", translation=False, resists=None),  # it looks at directions alone
    Defense("server_learning", translation=False, hull=False, resists=False),
    Defense("zeno(rho=0.1)", translation=False, mean_at_zero=True),
    Defense("kardam", mean_at_zero=True, resists=False),  # of its first round, a mean
    Defense("zeno_plus_plus", translation=False, hull=False),
    Defense("asyncfilter"),
    Defense("weak_dp", translation=False, scale=False, hull=False),
    Defense("crfl", translation=False, scale=False, hull=False),
    Defense("nnm >> mean", mean_at_zero=True, resists=False),  # a malicious row mixes itself in
    Defense("nnm >> trimmed_mean", mean_at_zero=True),
    Defense("nnm >> krum", mean_at_zero=True),
    Defense("nnm >> geometric_median", mean_at_zero=True),
    Defense("bucketing >> mean", permutation=False, mean_at_zero=False, resists=False),
    Defense("bucketing >> median", permutation=False),
    Defense("clip >> mean", translation=False, hull=False),
    Defense("clip(bound=1) >> mean", translation=False, scale=False, hull=False),
    Defense("clip >> nnm >> median", translation=False, hull=False),
    Defense("arc >> mean", translation=False, mean_at_zero=True, hull=False),
    Defense("arc >> nnm >> trimmed_mean", translation=False, mean_at_zero=True, hull=False),
    Defense("adaptive_clipping >> mean", translation=False, scale=False, hull=False),
    Defense("staleness_clipping >> mean", translation=False, hull=False),
    Defense("staleness_clipping(bound=1, slope=1) >> median", translation=False, scale=False, hull=False),
    Defense("client_clipping(bound=1) >> trimmed_mean", mean_at_zero=True),  # the server's part of it
    Defense("pruning >> sign >> noise >> mean", mean_at_zero=True, resists=False),
    Defense("soteria >> ats >> grad_defense >> mean", mean_at_zero=True, resists=False),
]


def malicious(case: Defense, n: int) -> int:
    """The f that the laws are tried with: about a quarter of n, or fewer where the defense cannot stand as many."""
    pipeline = load_registry().pipeline(case.text)
    for f in range((n - 1) // 4, 0, -1):
        try:
            pipeline.check(n, f)
        except PreconditionError:
            continue
        return f
    return 0


@dataclass(frozen=True)
class Attack:
    """An attack and the parameters it is tested with.

    finite: all it sends is.
    scale: what it sends is s times as long where all updates are; not so where a parameter is in their units, nor in a random
    search, whose way follows the last digit.
    """

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    finite: bool = True
    scale: bool = True


ATTACKS = [
    Attack("sign_flip"),
    Attack("sign_flip", {"scale": 3.0}),
    Attack("ipm", {"tau": 0.1}),
    Attack("alie"),
    Attack("alie", {"z": -1.5}),
    Attack("min_max"),
    Attack("min_max", {"direction": "std"}),
    Attack("min_max", {"direction": "unit"}),
    Attack("min_max", {"direction": "sign"}),
    Attack("min_sum"),
    Attack("min_sum", {"direction": "std"}),
    Attack("min_sum", {"direction": "unit"}),
    Attack("min_sum", {"direction": "sign"}),
    Attack("agr_tailored"),
    Attack("agr_tailored", {"direction": "std"}),
    Attack("agr_tailored", {"direction": "unit"}),
    Attack("agr_tailored", {"direction": "sign"}),
    Attack("mixed_step"),
    Attack("mixed_step", {"sign": 0.0, "back": 0.3}),
    Attack("mixed_step", {"std": 2.0, "back": 0.0, "length": 2.0}),
    Attack("fang"),
    Attack("fang", {"form": "krum"}, scale=False),
    Attack("opt_alie"),
    Attack("opt_ipm"),
    Attack("gram_search", scale=False),
    Attack("gram_search", {"objective": "progress", "steps": 5}, scale=False),
    Attack("rop", scale=False),
    Attack("rop", {"z": 2.0, "pi": 0.5, "angle": 180.0}, scale=False),
    Attack("hybrid_sparse"),
    Attack("poisoned_fl"),
    Attack("poisoned_fl", {"every": 1}),
    Attack("cge_adaptive"),
    Attack("sign_guard_adaptive"),
    Attack("dissensus"),
    Attack("dissensus", {"epsilon": 4.0}),
    Attack("spectral_dissensus"),
    Attack("receiver_ipm"),
    Attack("receiver_ipm", {"reach": 0.5}),
    Attack("hermit"),
    Attack("inflated_weight"),
    Attack("tracker_bias"),
    Attack("one_range"),
    Attack("one_range", {"ranges": 2, "of": 1, "tau": 1.0}),
    Attack("held_back"),
    Attack("held_back", {"memory": 2}),
    Attack("inflated_samples"),
    Attack("overstated_rate"),
    Attack("understated_loss"),
    Attack("statistics_lie"),
    Attack("gauge", scale=False),
    Attack("gauge", {"c": 0.1}, scale=False),
    Attack("early_check_in"),
    Attack("no_show"),
    Attack("partial_sum"),
    Attack("partial_sum", {"scale": 3.0}),
    Attack("split_brain"),
    Attack("covered_sum"),
    Attack("false_accusation"),
    Attack("mimic"),
    Attack("mimic", {"client": 0}),
    Attack("gaussian", {"scale": 2.0}, scale=False),
    Attack("random_update", {"scale": 2.0}, scale=False),
    Attack("sybil", {"decorrelated": False}),
    Attack("sybil", {"scale": 3.0}),
    Attack("label_flip"),
    Attack("reward_flip"),
    Attack("action_flip"),
    Attack("reward_scaling"),
    Attack("false_behavior"),
    Attack("false_priorities"),
    Attack("false_memory"),
    Attack("replay_flood"),
    Attack("stale_trajectories"),
    Attack("trojdrl"),
    Attack("model_replacement"),
    Attack("model_replacement", {"boost": 1.0, "target": 3, "trigger": "pixel_patch(size=3)"}),
    Attack("pairwise_flip"),
    Attack("pairwise_flip", {"source_class": 1, "target_class": 7}),
    Attack("dynamic_flip"),
    Attack("dynamic_flip", {"to": "least_likely"}),
    Attack("feature_collision", {"base": 8, "victim": 1}),
    Attack("backdoor"),
    Attack("backdoor", {"trigger": "blended"}),
    Attack("backdoor", {"trigger": "distributed"}),
    Attack("backdoor", {"trigger": "semantic"}),
    Attack("backdoor", {"trigger": "edge_case"}),
    Attack("projected_backdoor"),
    Attack("projected_backdoor", {"bound": 0.5}),
    Attack("constrain_and_scale"),
    Attack("alternating_minimization"),
    Attack("neurotoxin"),
    Attack("a3fl", {"steps": 4}),
    Attack("iba", {"steps": 4}),
    Attack("nan", finite=False),
    Attack("infinity", finite=False),
    Attack("zeros"),
    Attack("huge_value"),
    Attack("unit_error"),
    Attack("stale", {"delay": 2}),
    Attack("label_noise"),
    Attack("label_noise", {"noise": "asymmetric", "share": 0.2}),
    Attack("dead_pixels"),
    Attack("stuck_sensor"),
    Attack("stuck_sensor", {"share": 0.5}),
    Attack("gain_drift"),
    Attack("gain_drift", {"drift": -0.3}),
    Attack("wrong_normalization"),
    Attack("wrong_normalization", {"scale": 255.0, "shift": 0.0}),
    Attack("duplicated_client"),
    Attack("dropout"),
    Attack("dropout", {"rate": 0.5}),
    Attack("free_rider"),
    Attack("free_rider", {"noise": 0.1}, scale=False),
    Attack("free_rider", {"noise": 0.1, "decay": 1.0}, scale=False),
    Attack("delta_weights"),
    Attack("delta_weights", {"noise": 0.1}, scale=False),
]


def context(
    n: int, f: int, *, dim: int | None = None, root: Tensor | None = None, seed: int = 0, state: Any = None
) -> RuleContext:
    """What a server sees that sees everything."""
    return RuleContext(
        "test",
        Sight.EACH_UPDATE
        | Sight.MODEL
        | Sight.TIMES
        | Sight.GRAPH
        | (Sight.ROOT_DATA if root is not None else Sight.NOTHING),
        f=f,
        round=1,
        rng=Rng(seed),
        state=state or {},
        clients=tuple(range(n)),
        own=0,
        samples=torch.ones(n, dtype=torch.float64),
        noise=torch.ones(n, dtype=torch.float64),
        root=root,
        layers=LAYERS.get(dim or 0, () if dim is None else (dim,)),
        shape=(2,),
        server_lr=1.0,
        model=torch.zeros(dim or 1),
        predict=linear,
        staleness=torch.zeros(n, dtype=torch.int64),
        versions=torch.zeros(n, dtype=torch.int64),
        arrived=torch.zeros(n, dtype=torch.float64),
        scale=torch.ones(n, dtype=torch.float64),
        federation=(f, n),
        starts=torch.zeros(dim or 1).expand(n, -1),
        root_loss=lambda model: float((model.double() - (0 if root is None else root)).square().sum()),
    )


#: Layers of the networks behind updates of some lengths; others are one layer.
LAYERS = {6: (4, 2), 40: (24, 8, 6, 2)}


def linear(model: Tensor, x: Tensor) -> Tensor:
    """Logits of a network without hidden layers, whose weights are the first parameters, as far as they reach."""
    weights = torch.nn.functional.pad(model, (0, max(0, 4 - len(model))))[:4].view(2, 2)
    return x @ weights.T


def run(text: str, updates: Tensor, f: int, *, root: Tensor | None = None, seed: int = 0) -> Aggregate:
    """Run a pipeline on the updates of a first round; fltrust gets the mean as the server's update unless one is given."""
    root = updates.mean(0) if root is None else root
    return aggregate(pipeline(text), updates, context(len(updates), f, dim=updates.shape[1], root=root, seed=seed))


@cache
def pipeline(text: str) -> Pipeline:
    """Built once: nothing in it changes."""
    return load_registry().pipeline(text)


#: Inputs with exact ties: votes, one vector and its opposite, small integers, three places, two places far from the origin.
TIES = ("votes", "small votes", "opposites", "integers", "three places", "two places")


def tied(kind: str, n: int, d: int, seed: int) -> Tensor:
    """float32 ``[n, d]``: rows whose distances, lengths, signs or values are equal, of one of the kinds of `TIES`."""
    draw = torch.Generator().manual_seed(seed)

    def whole(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high + 1, shape, generator=draw)

    if kind == "integers":
        return whole(-1, 1, n, d).float()
    if kind in ("votes", "small votes"):
        return (2.0 * whole(0, 1, n, d) - 1) * (1 if kind == "votes" else 0.013)
    if kind == "opposites":
        return torch.randn(1, d, generator=draw) * (2 * whole(0, 1, n, 1) - 1)
    places = torch.randn(3, d, generator=draw) + 1
    if kind == "three places":
        return places[whole(0, 2, n)]
    return places[torch.randperm(n, generator=draw) % 2]


#: From the smallest normal float32 to near the largest value that the server lets pass.
MAGNITUDES = (1e-38, 1e-30, 1e-25, 1e-20, 1e-10, 1e10, 1e20, 1e30, LARGEST / 8)


def normal(n: int, d: int, seed: int = 0, spread: float = 1.0, center: float = 1.0) -> Tensor:
    """float32 ``[n, d]``: rows around a point, without ties."""
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)) * spread + center
