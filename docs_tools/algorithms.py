"""One page for each kind of algorithm: the output of `fedguard explain` for each algorithm."""

from __future__ import annotations

import inspect
import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from docs_tools.markup import code, fenced, inline, page, paragraphs, table
from fedguard.bench.docstrings import prose
from fedguard.bench.explain.catalogue import SEEING, facts, parameters
from fedguard.bench.explain.toy import picture_of
from fedguard.contracts import Algorithm, Masking
from fedguard.registry import load_registry

_ROOT = Path(__file__).resolve().parents[1]

#: Page -> title, kinds on it, introduction.
PAGES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "attacks": (
        "Attacks on the training",
        ("attack", "trigger"),
        "What malicious clients do. In a suite they stand under `matrix.attack`; what they may see is the "
        "[threat model](../threat_models.md)'s. Which of them run under masks: [the catalogue](../catalogue.md#attacks).",
    ),
    "inference": (
        "Attacks on the clients' privacy",
        ("inference",),
        "What a server infers from what it sees. In a suite they stand under `matrix.attack` too; "
        "[what each of them found](../inference.md) was measured.",
    ),
    "protocol_attacks": (
        "Attacks on secure aggregation",
        ("protocol",),
        "Malicious servers and clients against the protocol itself, by `fedguard secagg attack NAME`. What stops each: "
        "[secure aggregation](../secagg_attacks.md#the-attacks).",
    ),
    "defenses": (
        "Defenses",
        ("defense",),
        "They compose as `client transforms >> mixings >> rule`. kappa is the coefficient of robustness: the smaller, the "
        "nearer the result stays to the honest mean. Which of them run under masks: [the catalogue](../catalogue.md#defenses).",
    ),
    "algorithms": (
        "Federated algorithms",
        ("algorithm",),
        "What clients train, what they and the server keep, and what becomes of the aggregate. In a suite they stand under "
        "`training.algorithm`, and a parameter beside it: `training: {algorithm: fedprox, mu: 0.1}`. "
        "[Who trains how](../algorithms.md) compares them.",
    ),
    "modes": (
        "Modes of secure aggregation",
        ("masking",),
        "What `protocol.secure_aggregation` may be, and who sees what. How it works: "
        "[secure aggregation](../secure_aggregation.md).",
    ),
    "noises": (
        "Noise for privacy",
        ("noise",),
        "What is added to hide clients or their examples. In a suite they stand under `protocol.privacy`, as "
        "`{name: record, epsilon: 3}`. What each proves: [choose the noise](../privacy_noise.md).",
    ),
    "evasions": (
        "Attacks at test time",
        ("evasion",),
        "Inputs that are changed a little, so that a trained model errs. In a suite one of them stands under "
        "`evaluation.evasion`: [evasion](../evasion.md).",
    ),
    "availabilities": (
        "When devices are there",
        ("availability",),
        "How the devices of a simulated network come and go. In a suite they stand under `network.availability`: "
        "[simulated time](../simulated_time.md).",
    ),
    "statistics": (
        "Fates of running statistics",
        ("statistics",),
        "What becomes of the means and variances that batch normalization keeps. In a suite they stand under "
        "`training.statistics`: [batch normalization](../statistics.md).",
    ),
    "adapters": (
        "Forms of low-rank adapters",
        ("adapters",),
        "What clients send of low-rank adapters, and what a rule sees of them. In a suite one of them stands under "
        "`training.adapters`, as `{form: product, rank: 4}`: [low-rank adapters](../adapters.md).",
    ),
    "tasks": (
        "Data, partitions, models, architectures",
        ("data", "partition", "model", "architecture"),
        "What is learned, how the examples are dealt out, and how the parties train together. Nothing is downloaded.",
    ),
}

_TITLES = {
    "attack": "Attacks", "trigger": "Triggers of backdoors", "inference": "Attacks", "protocol": "Attacks",
    "defense": "Defenses", "algorithm": "Algorithms", "masking": "Modes", "noise": "Kinds",
    "data": "Data", "partition": "Partitions", "model": "Models", "architecture": "Architectures",
    "availability": "Laws", "evasion": "Attacks", "statistics": "Fates", "adapters": "Forms",
}  # fmt: skip


def pages() -> dict[str, str]:
    """``reference/defenses.md`` and so on, each with its Markdown."""
    return {f"reference/{name}.md": _page(*described) for name, described in PAGES.items()}


def addresses() -> dict[str, str]:
    """The page of each algorithm by its kind and name: ``defense/krum`` -> ``reference/defenses.md#krum``."""
    of_kind = {kind: name for name, (_, kinds, _) in PAGES.items() for kind in kinds}
    return {f"{kind}/{cls.name}": f"reference/{of_kind[kind]}.md#{cls.name}" for kind, cls in built_in(*of_kind)}


def built_in(*kinds: str) -> list[tuple[str, type[Algorithm]]]:
    """The algorithms of FedGuard itself: the site must not depend on the plug-ins installed where it is built."""
    return [
        (kind, cls)
        for kind, cls in load_registry().classes(kinds)
        if load_registry().origin(kind, cls.name) == "built in"
    ]


def _page(title: str, kinds: tuple[str, ...], first: str) -> str:
    parts = [first]
    for kind in kinds:
        classes = [cls for _, cls in built_in(kind)]
        if len(kinds) > 1:
            parts.append(f"## {_TITLES[kind]}")
        parts.append(table(["", "what it does"], ([_link(cls.name), inline(cls.summary())] for cls in classes)))
        parts += [_entry(cls, "###" if len(kinds) > 1 else "##") for cls in classes]
    return page(title, *parts)


def _link(name: str) -> str:
    return f'<a href="#{name}">{code(name)}</a>'


def _entry(cls: type[Algorithm], level: str) -> str:
    rows = [
        [code(row["name"]), code(row["type"]), code(row["default"]), inline(row["meaning"])] for row in parameters(cls)
    ]
    known = (*facts(cls), ("defined in", _file(cls)))
    return "\n\n".join([
        f"{level} {cls.name}",
        paragraphs(prose(cls.__doc__ or "")),
        table([], ([f"<strong>{inline(name)}</strong>", inline(value)] for name, value in known)),
        table(["parameter", "type", "default", "meaning"], rows) if rows else "",
        _picture(cls),
        _in_a_suite(cls),
    ])  # fmt: skip


def _file(cls: type[Algorithm]) -> str:
    """Path of its file in the repository."""
    return f"`{Path(inspect.getfile(cls)).resolve().relative_to(_ROOT)}`"


def _picture(cls: type[Algorithm]) -> str:
    """Its effect on a toy round, drawn in characters; empty if there is no such picture."""
    drawn = picture_of(cls)
    if drawn is None:
        return ""
    console = Console(file=StringIO(), width=64, color_system=None)
    with console.capture() as captured:
        console.print(drawn)
    return fenced(captured.get(), "text")


def _in_a_suite(cls: type[Algorithm]) -> str:
    if cls.kind == "protocol":
        return fenced(f"fedguard secagg attack {cls.name}", "sh")
    key = {
        "inference": "attack",
        "data": "task.data",
        "partition": "task.partition",
        "model": "task.model",
        "algorithm": "training.algorithm",
        "availability": "network.availability",
        "evasion": "evaluation.evasion",
        "statistics": "training.statistics",
        "adapters": "training.adapters",
    }
    if issubclass(cls, Masking):
        setting = cls(**cls.example).setting
        spelled = setting if isinstance(setting, str) else json.dumps(setting).replace('"', "")
        return paragraphs(f"In a suite: ``protocol.secure_aggregation: {spelled}``")
    if cls.kind == "noise":
        return paragraphs(
            f"In a suite: ``protocol.privacy: {cls.name}``, or ``{{name: {cls.name}, ...}}`` with its parameters"
        )
    if cls.kind in SEEING or cls.kind in key:
        return paragraphs(f"In a suite: ``{key.get(cls.kind, cls.kind)}: {cls.name}``")
    return ""
