"""Who sees what under secure aggregation and noise, and what can still run: determined from cells, as by `fedguard check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedguard.bench.explain.catalogue import modes
from fedguard.bench.running.protocol import noise_in_words
from fedguard.config import Document, PlannedCell, plan, read_suite
from fedguard.contracts import Defense, InferenceAttack, Sight
from fedguard.contracts.rules import AggregationRule
from fedguard.registry import load_registry
from fedguard.visibility import derive_exposure

#: Enough clients, with only one malicious among them, that no rule is refused for their numbers.
_CLIENTS = {"total": 100, "malicious": 1}

#: Setups beside each mode by itself, by name.
NOISY: dict[str, dict[str, Any]] = {
    "none, noise of each client on its records": {
        "privacy": {"name": "record", "noise_multiplier": 1.0, "sample_rate": 0.1}
    },
    "none, noise of a trusted server": {"privacy": {"name": "client", "noise_multiplier": 1.0}},
    "full, noise shared out among the clients": {
        "secure_aggregation": "full",
        "privacy": {"name": "distributed", "noise_multiplier": 1.0},
    },
}


@dataclass(frozen=True, kw_only=True)
class ProtocolVisibility:
    """One way to set the protocol up.

    Attributes:
        words: who sees what; noise: what is added, for whom; empty for none.
        server, colluders: what they see, item by item.
        refused: defenses that cannot run, each with the reason; runs: those that can.
        blind: attacks on the clients' privacy that cannot run, each with the reason; infer: those that can.
    """

    name: str
    words: str
    noise: str
    server: tuple[str, ...]
    colluders: tuple[str, ...]
    refused: dict[str, str]
    runs: tuple[str, ...]
    blind: dict[str, str]
    infer: tuple[str, ...]


def setups() -> dict[str, dict[str, Any]]:
    """The setups by name: each mode by itself, and some with noise."""
    return {name: {"secure_aggregation": {"name": name, **mode.example}} for name, mode in modes().items()} | NOISY


def who_sees_what() -> list[ProtocolVisibility]:
    """Each of `setups`: 100 clients, a server with clean data of its own that may be malicious."""
    suite = {
        "schema": 1,
        "name": "setups",
        "clients": _CLIENTS,
        "server": {"root_data": 100},
        "observer": {"server": "malicious"},
        "matrix": {"protocol": list(setups().values())},
    }
    document = Document(suite)
    positions = plan(document, read_suite(document)).positions
    return [_sees(name, cell) for name, (_, cell) in zip(setups(), positions, strict=True)]


def _sees(name: str, cell: PlannedCell) -> ProtocolVisibility:
    exposure = derive_exposure(cell.architecture.exposes, cell.masking, root_data=True)
    defenses = {
        defense: cell.with_parts(pipeline=load_registry().pipeline(spec)).verdict.reasons
        for defense, spec in _defenses()
    }
    attacks = {
        cls.name: cell.with_parts(inference=load_registry().build("inference", cls.name)).verdict.reasons
        for _, cls in load_registry().classes(["inference"])
        if issubclass(cls, InferenceAttack)
    }
    return ProtocolVisibility(
        name=name,
        words=cell.masking.words,
        noise=" ".join(noise_in_words(cell)),
        server=_words(exposure.server.with_implied()),
        colluders=_words(exposure.clients),
        refused={one: " ".join(reasons) for one, reasons in defenses.items() if reasons},
        runs=tuple(one for one, reasons in defenses.items() if not reasons),
        blind={one: " ".join(reasons) for one, reasons in attacks.items() if reasons},
        infer=tuple(one for one, reasons in attacks.items() if not reasons),
    )


def _defenses() -> Iterator[tuple[str, str]]:
    """The shortest pipeline of each defense by its name: a stage that is no rule by itself is followed by the mean."""
    for _, cls in load_registry().classes(["defense"]):
        if issubclass(cls, Defense):
            yield cls.name, cls.name if issubclass(cls, AggregationRule) else f"{cls.name} >> mean"


def _words(sight: Sight) -> tuple[str, ...]:
    return tuple(one.words() for one in Sight if one.value and one in sight)
