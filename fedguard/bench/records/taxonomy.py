"""The kind of federation of a cell, in six words (after Li et al., A Survey on Federated Learning Systems, TKDE 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: Models whose logits are affine in the inputs.
LINEAR = frozenset({"softmax", "svm"})

#: The most parties of a federation across silos (Kairouz et al., Advances and Open Problems in Federated Learning, 2021).
SILOS = 100

#: Architectures in which all nodes hold one model, and none of them is a server.
_SERVERLESS = ("all_reduce", "btard")

#: Parameters of architectures by which several servers aggregate, and the resulting kind of architecture.
_SERVERS = {"ranges": "sharded", "aggregators": "hierarchical", "combiners": "hierarchical"}


class Word(NamedTuple):
    """One aspect of a federation.

    Attributes:
        aspect: what the word is about.
        word: the kind that it is of.
        since: what in the cell makes it so.
    """

    aspect: str
    word: str
    since: str


def taxonomy(record: Mapping[str, Any]) -> tuple[Word, ...]:
    """The six words of a record of either edition, by its configuration and threat card; nothing of it is stored.

    - data: ``horizontal``, since every partition deals whole examples, with all features and the label.
    - model: ``linear``, or a ``network``.
    - privacy mechanism: ``masks``, ``noise``, ``masks and noise`` or ``none``.
    - architecture: ``decentralized`` where each node aggregates for itself; else ``centralized``; ``sharded`` over servers that
      have a range each, ``hierarchical`` with others between clients and server.
    - scale: ``cross-silo`` of at most 100 clients, else ``cross-device``.
    - motivation: ``regulation``, where a mechanism protects what is private, else ``incentive``: the model is all that
      the parties get. Why they really train together no configuration says.
    """
    config, card = record["config"], record["threat_card"]
    model = config["task"]["model"]["name"]
    public = f", {100 * card['shared']:.3g} % of them with everybody" if "shared" in card else ""
    architecture, mode = card.get("architecture", "server"), card["secure_aggregation"]
    hidden = [f"secure_aggregation: {mode}"] if mode != "none" else [architecture] * ("masked" in card["server_shown"])
    noisy = [f"privacy: {card['privacy']}"] if card["noise"] else []
    privacy = " and ".join(["masks"] * len(hidden) + ["noise"] * len(noisy)) or "none"
    scale = "cross-silo" if card["clients"] <= SILOS else "cross-device"
    return (
        Word("data", "horizontal", f"whole examples, dealt by {card['partition']}{public}"),
        Word("model", "linear" if model in LINEAR else "network", model),
        Word("privacy mechanism", privacy, ", ".join(hidden + noisy) or "updates travel as they are"),
        Word("architecture", _shape(config.get("architecture"), card), architecture),
        Word("scale", scale, f"{card['per_round']} of {card['clients']} in a round"),
        Word(
            "motivation", *(("incentive", "a model") if privacy == "none" else ("regulation", "a model, and privacy"))
        ),
    )


def in_words(records: Sequence[Mapping[str, Any]]) -> str:
    """``horizontal data, linear model, ...`` of all these records; where they differ, each word once."""
    columns = zip(*(taxonomy(record) for record in records), strict=True)
    told = [(column[0].aspect, " or ".join(dict.fromkeys(one.word for one in column))) for column in columns]
    return ", ".join(f"{aspect} {words}" for aspect, words in told)


def _shape(architecture: Any, card: Mapping[str, Any]) -> str:
    """The arrangement of servers between the clients and the model."""
    given = architecture if isinstance(architecture, Mapping) else {"name": architecture}
    if "graph" in card["server_shown"] or given.get("name") in _SERVERLESS:
        return "decentralized"
    several = (word for key, word in _SERVERS.items() if isinstance(given.get(key), int) and given[key] > 1)
    return next(several, "centralized")
