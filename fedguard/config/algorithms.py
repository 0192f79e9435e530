"""With what an algorithm and a schedule of clients go together, and which settings of a training have an effect."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedguard.config.protocol import looking_at_data
from fedguard.contracts import (
    ClientNoise,
    Ensemble,
    InferenceAttack,
    Participation,
    Pipeline,
    PoisonAttack,
    Protocol,
    RecordNoise,
    Sight,
    Training,
)

#: Those whose clients send what plain SGD moved them by.
_PLAIN = ("fedsgd", "fedavg")
#: Those whose clients and server keep account of what was sent.
_KEEPING = ("scaffold", "feddyn")


def settings(training: Training) -> dict[str, Any]:
    """The training as JSON from which it can be built again. What came later stands there only where it is set."""
    kept = asdict(training) | training.own
    later = ("local_steps", "server_optimizer", "mu", "alpha")
    return {key: value for key, value in kept.items() if value is not None or key not in later}


def algorithm_reasons(
    training: Training,
    clients: Participation,
    protocol: Protocol,
    pipeline: Pipeline,
    rule_sees: Sight,
    adversary: PoisonAttack | Ensemble | None,
    inference: InferenceAttack | None,
) -> list[str]:
    """Why an algorithm or a schedule does not go with the rest of a cell: a line for each reason."""
    name = training.algorithm
    reasons = [*_under_protocol(training, protocol), *_with_schedule(clients, protocol)]
    if inference is not None and name not in _PLAIN:
        reasons.append(
            f"{inference.name} replays the local steps of fedavg and fedsgd, and {name} takes others. Use fedavg or fedsgd."
        )
    if name not in (*_PLAIN, "fedprox") and (Sight.ROOT_DATA in rule_sees or protocol.mode == "group_testing"):
        reasons.append(
            f"the server trains on its root data as fedavg does, and {name} sends another kind of update. Use fedavg."
        )
    if name in _KEEPING and not pipeline.rule.estimates_mean:
        reasons.append(
            f"{name} takes the server's aggregate for a mean of updates, and what else {pipeline.rule.name} puts into it adds "
            "up from round to round. Use trimmed_mean, or fedavg."
        )
    if name == "fedper":
        reasons += _personal(pipeline, adversary)
    return reasons


def _under_protocol(training: Training, protocol: Protocol) -> list[str]:
    """Noise is proven, and audited, for what it is known to hide."""
    name, noise, reasons = training.algorithm, protocol.privacy, []
    if isinstance(noise, RecordNoise) and name not in _PLAIN:
        reasons.append(f"DP-SGD takes the steps of fedavg and fedsgd, and {name} takes others. Use fedavg or fedsgd.")
    elif noise != "none" and name not in (*_PLAIN, "fedprox"):
        reasons.append(
            f"the noise is proven and audited for updates and their mean, and {name} works with more. Use fedavg or fedprox."
        )
    if isinstance(noise, ClientNoise) and training.server_optimizer:
        reasons.append(
            "the audit of the noise follows a server with momentum, and server_optimizer moves another way. Leave it out."
        )
    if protocol.norm_bound is not None and name in _KEEPING:
        reasons.append(
            f"{name} keeps account of what each client sends, and norm_bound shortens it afterwards. Use fedavg, or the "
            "defense client_clipping."
        )
    return reasons


def _with_schedule(clients: Participation, protocol: Protocol) -> list[str]:
    if not clients.schedule or (not protocol.masked and protocol.privacy == "none"):
        return []
    return [
        "clients.schedule changes how many clients there are, and secure aggregation and noise are planned for all of them. "
        "Leave out one of the two."
    ]


def _personal(pipeline: Pipeline, adversary: PoisonAttack | Ensemble | None) -> list[str]:
    """Whoever needs the whole model has none: the last layer is at the clients."""
    reasons = []
    looking = looking_at_data(pipeline)
    looking += [one.name for one in pipeline.stages if any(Sight.MODEL in way for way in one.needs)]
    if looking:
        reasons.append(
            f"{' and '.join(looking)} works with the whole model, and under fedper each client has a last layer of its own. "
            "Use fedavg."
        )
    if isinstance(adversary, PoisonAttack) and adversary.goal == "backdoor":
        reasons.append(
            f"{adversary.name}'s backdoor is measured on one model, and under fedper there is one for each client. Use fedavg."
        )
    return reasons
