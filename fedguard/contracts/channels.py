"""The channels of FedGuard: what clients report and nobody verifies, each with who asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from math import inf
from typing import Any

import torch
from torch import Tensor

from fedguard.contracts.acting import Rollout
from fedguard.contracts.claims import MOST
from fedguard.contracts.lying import Channel
from fedguard.contracts.poison_views import PoisonView
from fedguard.contracts.return_checks import describe_value
from fedguard.contracts.spaces import Box, Choices
from fedguard.contracts.statistics import StatisticsLayout
from fedguard.rng import Rng

# ---- What is valid: each function says what was expected of a reported value that is not.


def _number(expected: str, valid: Callable[[float], bool]) -> Callable[[Any, float], str | None]:
    """A number for which ``valid`` holds; comparisons exclude NaN."""
    return lambda said, _: None if isinstance(said, int | float) and valid(said) else expected


_above_0 = _number("a number above 0", lambda said: 0 < said < inf)


def _examples(said: Any, _truth: int) -> str | None:
    return None if isinstance(said, int) and 1 <= said <= MOST else "1 example or more, and at most 2^112"


def _answer(said: Any, _truth: bool) -> str | None:
    return None if isinstance(said, bool) else "True or False"


def _floats(said: Any, truth: Tensor, *_: Any) -> str | None:
    """Floats of the true value's shape, which need not be finite: who sums them finds out."""
    valid = isinstance(said, Tensor) and said.is_floating_point() and said.shape == truth.shape
    return None if valid else f"a torch tensor of floats {list(truth.shape)}"


def _priorities(said: Any, truth: Tensor) -> str | None:
    valid = not _floats(said, truth) and bool((torch.isfinite(said) & (said >= 0)).all())
    return None if valid else f"finite floats {list(truth.shape)}, 0 or more"


def _actions(said: Any, truth: Tensor, space: Choices | Box) -> str | None:
    """Of a range any finite number, since a policy's own may lie beyond it, too."""
    low, high = (0, space.n - 1) if isinstance(space, Choices) else (-inf, inf)
    right = isinstance(said, Tensor) and (said.shape, said.dtype) == (truth.shape, truth.dtype)
    valid = right and bool(((said >= low) & (said <= high) & said.isfinite()).all())
    return None if valid else f"{describe_value(truth)} of {low:g} to {high:g}"


def _transitions(said: Any, truth: Tensor) -> str | None:
    right = isinstance(said, Tensor) and said.dtype == torch.int64 and said.dim() == 1
    return None if right and bool(torch.isin(said, truth).all()) else f"int64 [any] of 0 to {len(truth) - 1}"


def _rollout(said: Any, truth: Rollout, *_: Any) -> str | None:
    """A rollout whose parts have the shapes and types of the true ones."""
    if not isinstance(said, Rollout):
        return "a Rollout"
    for name in (field.name for field in fields(Rollout)):
        true, part = getattr(truth, name), getattr(said, name)
        if type(part) is not type(true) or (true is not None and (part.shape, part.dtype) != (true.shape, true.dtype)):
            return f"a Rollout whose {name} are {describe_value(true)}, not {describe_value(part)}"
    return None


# ---- Of any client.

#: Number of examples, by which rules may weigh
SAMPLES: Channel[int, []] = Channel(
    "samples", "how many examples its clients have", "weighted_mean", _examples, listener="everybody"
)

# ---- Of devices under a server.

#: Seconds until a device checks in; the truth is the time that the server assigned
CHECK_IN: Channel[float, []] = Channel(
    "check_in",
    "when its devices check in",
    "google with selection and check_ins",
    _number("seconds, 0 or more", lambda said: 0 <= said < inf),
    "check-ins",
)
#: Whether a device that is asked to train will report; one that will not still claims to be available
PROMISES: Channel[bool, []] = Channel(
    "promises",
    "who will report",
    "google, which asks more devices than it needs and has a deadline",
    _answer,
    "promises",
)
#: Examples per second that a device or node trains
RATE: Channel[float, []] = Channel("rate", "how quick its devices are", "decaf or dlion", _above_0)
#: Share of the rounds in which a device stays; the truth is the share in which it was observed to stay
AVAILABILITY: Channel[float, []] = Channel(
    "availability", "how often its devices stay", "decaf", _number("a share in [0, 1]", lambda said: 0 <= said <= 1)
)

#: float32 ``[f, s]``: the running statistics that malicious clients send beside their updates, given the layout
STATISTICS: Channel[Tensor, [StatisticsLayout]] = Channel(
    "statistics", "its running statistics", "server, with a network that normalizes over batches", _floats, "statistics"
)

# ---- Of nodes without a server.

#: Loss of a node's model on its own examples; infinity if it is not finite
LOSS: Channel[float, []] = Channel(
    "loss", "how well its models do", "dlion with transfer", _number("a number, 0 or more", lambda said: said >= 0)
)
#: Push-sum weight
WEIGHT: Channel[float, []] = Channel("weight", "its push-sum weight", "sgp", _above_0)
#: Whether a node mixes its neighbors' values; one that does not trains and sends as honest nodes do, but keeps its own value
MIXING: Channel[bool, []] = Channel(
    "mixing", "what its nodes make of others' values", "d_psgd, or another way without a server", _answer, "mixing"
)
#: float32 ``[f, d]``: what malicious nodes send as trackers of the mean update; the truth is what they send as models
TRACKERS: Channel[Tensor, [PoisonView]] = Channel(
    "trackers", "its tracker of the mean update", "dsgt or detag", _floats, "trackers"
)

# ---- Of nodes that add up, and check, each other's updates; the context is the view and what `PoisonAttack.craft` returned.

#: float32 ``[f, d]``: what each malicious node adds to the sums of others that it passes on; the truth is 0
PARTIAL_SUMS: Channel[Tensor, [PoisonView, Tensor]] = Channel(
    "partial_sums",
    "the sums that its nodes pass on",
    "btard, or all_reduce with a topology other than all_to_all",
    _floats,
    "sums passed on",
)
#: float32 ``[f, d]``: what it adds to finished sums, so that nodes before and after it have different ones; the truth is 0
FINISHED_SUMS: Channel[Tensor, [PoisonView, Tensor]] = Channel(
    "finished_sums",
    "the finished sums that its nodes hand on",
    "all_reduce in a ring or hierarchical, without masks",
    _floats,
    "sums handed on",
)
#: Whether a node that changed a sum falsifies its own share of a check on it by the same amount; the truth is False
CHECKS: Channel[bool, []] = Channel("checks", "its share of a check by sums", "btard with sums", _answer, "checks")
#: Whether a node accuses each honest node that it checks; otherwise it reports no fault, which counts as the truth
ACCUSATIONS: Channel[bool, []] = Channel("accusations", "what other nodes did", "btard", _answer, "accusations")

# ---- Of actors in an environment.

#: float32 of any shape: the rewards from which an actor learns
REWARDS: Channel[Tensor, []] = Channel(
    "rewards",
    "what its actors are rewarded with",
    "label_flip, or an environment such as cartpole",
    _floats,
    "rewards",
    "environment",
)
#: int64 ``[B]`` of `Choices`, float32 ``[B, n]`` of a `Box`: the actions that an actor takes; the truth is what it reports
ACTIONS: Channel[Tensor, [Choices | Box]] = Channel(
    "actions",
    "what its actors do",
    "label_flip, or an environment such as cartpole",
    _actions,
    "actions",
    "environment",
)
#: The rollout that an actor reports and learns from, given the rollouts that it keeps (a list that starts empty, in which the
#: lie may put some and from which it may take some), the number of actions (0 if they are continuous) and the stream of this
#: actor and rollout. The truth has the rewards and probabilities that lies made
TRAJECTORIES: Channel[Rollout, [list[Rollout], int, Rng]] = Channel(
    "trajectories",
    "what its actors met with",
    "label_flip or backdoor, or an environment such as cartpole",
    _rollout,
    "trajectories",
    "environment",
)
#: float32 of any shape: log-probabilities of an actor's actions
BEHAVIOR: Channel[Tensor, []] = Channel(
    "behavior", "how likely its actors were to act so", "impala with vtrace", _floats
)
#: float32 of any shape, 0 or more: priorities in a replay
PRIORITIES: Channel[Tensor, []] = Channel(
    "priorities", "how much there is to learn from its transitions", "apex", _priorities
)
#: float32 ``[B, M]``: the memory of an actor's network before a sequence
MEMORIES: Channel[Tensor, []] = Channel("memories", "what its actors' networks remembered", "r2d2", _floats)
#: int64 ``[k]`` -> ``[any]``: the transitions that an actor sends to a replay, by their numbers
TRANSITIONS: Channel[Tensor, []] = Channel(
    "transitions", "which transitions its actors have", "apex", _transitions, "transitions"
)
