"""Whether a protocol can be run among so many clients, with which rules, and which of its settings have an effect."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedguard.contracts import (
    BEFORE_THE_INPUT,
    AdaptiveClip,
    ClientNoise,
    ClientTransform,
    Data,
    DistributedNoise,
    Groups,
    GroupTested,
    GroupTesting,
    Level,
    Model,
    Participation,
    Pipeline,
    Protocol,
    RecordNoise,
    Training,
)
from fedguard.errors import ConfigError, require
from fedguard.privacy.accounting import check_delta
from fedguard.privacy.central import central
from fedguard.privacy.planned import distributed
from fedguard.secagg.encoding import Encoding
from fedguard.secagg.parameters import Parameters, choose


def check(protocol: Protocol, clients: Participation, training: Training, where: str) -> None:
    """See to it that the protocol can keep what it promises.

    Args:
        where: it stands, for messages.

    Raises:
        ConfigError: too few clients in a session, more dropouts than it stands, sums that could wrap around the ring
            (`OverflowBudgetError`), noise that does not fit, or settings that exclude each other.
    """
    try:
        _check_noise(protocol, clients, training)
        if not protocol.masked:
            _check_plain(protocol)
            return
        if isinstance(protocol.secure_aggregation, Groups):
            _check_groups(protocol, protocol.secure_aggregation, clients)
        if isinstance(protocol.secure_aggregation, GroupTested):
            _check_tests(protocol, protocol.secure_aggregation.group_testing, clients, training.rounds)
        session(protocol, clients)
        Encoding(**asdict(protocol.fixed_point)).check(
            protocol.session(clients.expected, clients.most).most, _noise_tail(protocol, clients, training.rounds)
        )
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from None


def session(protocol: Protocol, clients: Participation) -> Parameters:
    """The parameters of the one session of a round, or of the smallest group's.

    Raises:
        ConfigError: there are none for so few clients, so many colluders or dropouts.
    """
    size, rate = protocol.session(clients.expected, clients.most), protocol.dropout.rate
    try:
        chosen = choose(size.expected, size.colluding, rate)
    except ConfigError as error:
        raise ConfigError(f"{error} (gamma follows from colluding, and delta is dropout.rate.)") from None
    size.check_left(rate, chosen.survivors)
    return chosen


def privacy_reasons(protocol: Protocol, pipeline: Pipeline, model: Model, data: Data) -> list[str]:
    """Why the noise does not go with a defense, a model or the data: a line for each reason."""
    noise, rule, reasons = protocol.privacy, pipeline.rule, []
    if noise != "none" and data.preparation.origin == "records":
        reasons.append(
            f"{data.name} takes {data.preparation.what} from the clients' own records, so that one record changes what all "
            f"clients train on; no noise hides that, and no epsilon would hold. {data.preparation.mend}"
        )
    levels = isinstance(noise, RecordNoise) and bool(noise.levels)
    if rule.by_noise and not levels:
        reasons.append(
            f"{rule.name} weighs the clients by the noise of their privacy levels, and there are none. Set protocol.privacy: "
            "{kind: record, levels: [...]}, or use mean."
        )
    if isinstance(noise, DistributedNoise) and rule.by_samples:
        reasons.append(f"the noise is made for clients that count alike, and {rule.name} weighs them. Use mean.")
    if isinstance(noise, RecordNoise):
        reasons += _reveals(pipeline)
        if not model.by_example:
            reasons.append(
                f"{model} gives an example another gradient in another batch, so that clipping does not bound what one adds. "
                "Use another model."
            )
    if isinstance(noise, ClientNoise):
        if protocol.masked:
            reasons.append(
                "the server adds the noise to updates that it clips, and under masks it sees none. Let the clients add the "
                "noise themselves (privacy: {kind: distributed}), or set secure_aggregation: off."
            )
        if pipeline.mixings or rule.name != "mean":
            reasons.append(
                f"the noise is made for the sensitivity of a mean, and {pipeline} is another rule, for which it proves "
                "nothing. Use mean, or privacy: {kind: record}."
            )
    return reasons


def _reveals(pipeline: Pipeline) -> list[str]:
    """What a defense tells of the clients' examples beside their noisy updates."""
    reasons = []
    if pipeline.rule.by_samples:
        reasons.append(
            f"{pipeline.rule.name} is told how many examples each client has, which the noise does not hide. Use mean."
        )
    looking = looking_at_data(pipeline)
    if looking:
        reasons.append(
            f"{' and '.join(looking)} looks at a client's examples beside DP-SGD, which the noise does not hide. Leave it out."
        )
    return reasons


def looking_at_data(pipeline: Pipeline) -> list[str]:
    """The client transforms that look at a client's examples."""
    return [one.name for one in pipeline.transforms if one.reads_data or type(one).prepare != ClientTransform.prepare]


def effective(protocol: Protocol) -> dict[str, Any]:
    """The settings that have an effect, as JSON from which the protocol can be built again."""
    settings = asdict(protocol)
    kept = {key: settings[key] for key in ("secure_aggregation", "privacy")}
    at, masked = protocol.dropout.at, protocol.masked
    if protocol.dropout.rate > 0 and (masked or at in BEFORE_THE_INPUT):
        kept["dropout"] = {"rate": protocol.dropout.rate, "at": at if masked else "masked_input"}
    if masked:
        kept |= {"colluding": protocol.colluding, "encoding": settings["encoding"]}
        if protocol.fixed_point != protocol.encoding or isinstance(protocol.privacy, DistributedNoise):
            del kept["encoding"]["clip"]
        if protocol.norm_bound is not None:
            kept["norm_bound"] = protocol.norm_bound
    return kept


def _check_plain(protocol: Protocol) -> None:
    require(
        not isinstance(protocol.privacy, DistributedNoise),
        "privacy: distributed noise is added under masks, and secure_aggregation is off: the server would see each update "
        "with too little noise. Set secure_aggregation: full.",
    )
    require(
        protocol.norm_bound is None,
        "norm_bound: lengths are proven under masks, and secure_aggregation is off: the server sees them. Use the defense "
        "clip(bound=...) >> mean.",
    )


def _check_groups(protocol: Protocol, plan: Groups, clients: Participation) -> None:
    size = protocol.session(clients.expected, clients.most)
    require(
        size.expected >= size.fewest,
        f"groups: {plan.groups} groups of {clients.expected} clients have {size.expected}, of whom {size.colluders} may "
        f"collude with the server; expected at least {size.fewest} in each. "
        f"Mend: take at most {clients.expected // size.fewest} groups, or lower colluding.",
    )
    require(
        plan.redraw or clients.expected == clients.total,
        f"redraw: groups that stay the same take all clients in each round; got {clients.expected} of {clients.total}. "
        "Set redraw: true, or clients.per_round: 1.0.",
    )


def _check_tests(protocol: Protocol, plan: GroupTesting, clients: Participation, rounds: int) -> None:
    require(
        plan.memberships < plan.tests,
        f"memberships: expected fewer than tests = {plan.tests}, for a client in every group tells nothing; "
        f"got {plan.memberships}.",
    )
    require(plan.round <= rounds, f"round: expected at most training.rounds = {rounds}; got {plan.round}.")
    require(
        clients.expected == clients.total,
        f"group_testing: each client is tested once, so all take part in each round; got {clients.expected} of "
        f"{clients.total}. Set clients.per_round: 1.0.",
    )
    require(
        not isinstance(protocol.privacy, DistributedNoise),
        "privacy: a test shows several sums over each client, for which the noise is not made. Set secure_aggregation: full.",
    )


def _check_noise(protocol: Protocol, clients: Participation, training: Training) -> None:
    noise = protocol.privacy
    if isinstance(
        noise, DistributedNoise | ClientNoise
    ):  # of records nobody knows how many there are before the data are read
        check_delta(noise.delta, clients.total, "client")
    if isinstance(noise, DistributedNoise):
        require(
            noise.noise_multiplier is not None or noise.epsilon is not None,
            "privacy: expected noise_multiplier or epsilon; got neither.",
        )
    if isinstance(noise, RecordNoise):
        require(
            training.batch_size is not None,
            "privacy: training.batch_size is what a step's noisy sum is divided by, and must not tell how many examples a "
            "client has; got none. Set training.batch_size.",
        )
        if noise.levels:
            require(
                noise.noise_multiplier is None and noise.epsilon is None,
                "privacy: expected noise_multiplier or epsilon in each of the levels; got it beside them too. Leave that out.",
            )
        for number, level in enumerate(noise.levels):
            _check_one(level, f"privacy.levels[{number}]")
        if not noise.levels:
            _check_one(noise, "privacy")
    if isinstance(noise, ClientNoise):
        _check_one(noise, "privacy")
        _check_bands(noise, clients)
        if isinstance(noise.clip, AdaptiveClip):
            central(noise, clients, training.rounds).sum_noise  # noqa: B018  raises where the count takes too much


def _check_one(noise: Level | RecordNoise | ClientNoise, where: str) -> None:
    given = [one for one in (noise.noise_multiplier, noise.epsilon) if one is not None]
    require(
        len(given) == 1,
        f"{where}: expected exactly one of noise_multiplier and epsilon; got {'both' if given else 'neither'}.",
    )


def _check_bands(noise: ClientNoise, clients: Participation) -> None:
    if noise.bands == 1:
        return
    require(
        not isinstance(noise.clip, AdaptiveClip),
        "privacy.clip: correlated noise takes a fixed clip, since the noise of one round is taken back in others; got an "
        "adaptive one. Set a number, or noise: independent.",
    )
    require(
        noise.bands <= clients.separation,
        f"privacy.noise.bands: expected at most the {clients.separation} rounds from one participation of a client to its "
        f"next; got {noise.bands}. Set clients.sampling: cyclic with clients.per_round of at most "
        f"{clients.total // noise.bands}, or lower bands.",
    )


def _noise_tail(protocol: Protocol, clients: Participation, rounds: int) -> int:
    """What the noise adds to the largest sum, in ring units, for a single coordinate; 0 without noise."""
    if not isinstance(protocol.privacy, DistributedNoise):
        return 0
    size = protocol.session(clients.expected, clients.most)
    require(
        size.honest >= 1,
        f"privacy: of {size.expected} clients in a session {size.colluders} may collude and others drop out, so nobody is "
        "sure to add noise. Lower colluding or dropout.rate, or take fewer groups.",
    )
    scale = Encoding(**asdict(protocol.fixed_point)).scale
    plan = distributed(protocol.privacy, rounds=rounds, contributors=size.honest, dim=1, scale=scale)
    return plan.for_round(contributors=size.honest, dim=1, scale=scale).noise_tail(size.most)
