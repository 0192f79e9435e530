"""An existing app in a cell: which sections it replaces, where an attack may act, and how a record stores it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedguard.config.sections import AppSection
from fedguard.config.targets import OWN, Target
from fedguard.contracts import InferenceAttack, PoisonAttack, Sight

if TYPE_CHECKING:
    from fedguard.config.cells import Cell
    from fedguard.config.schema import CellConfig

#: Methods of an attack that act where an app, or a training loop that is not FedGuard's, lets no attack act; and on what.
ELSEWHERE = {
    "poison": "the clients' data",
    "prepare": "what clients settle before they train",
    "plan": "local training",
    "silent": "who takes part",
}

#: The sections of a cell that an app replaces
BROUGHT = ("task", "training", "protocol", "server", "evaluation", "architecture", "network")


def acts_elsewhere(attack: PoisonAttack) -> str | None:
    """What an attack acts on before updates exist; None if it only changes updates or claims."""
    acts = [what for method, what in ELSEWHERE.items() if attack.overrides(method)]
    return next(iter([*acts, *(channel.about for channel in attack.lies if channel.listener != "everybody")]), None)


def describe_app() -> dict[str, Any]:
    """The content of a record for the sections that an app replaces."""
    return {
        "task": {
            "data": {"name": "flower"},
            "partition": {"name": "app"},
            "model": {"name": "app"},
            "partition_seed": None,
        },
        "training": {"rounds": 0, "algorithm": "app"},
        "architecture": "flower",
    }


def without_description(data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a cell from the content of a record: without `describe_app`, and with the app's own strategy as a word.

    Settings without an app are returned unchanged.
    """
    if data.get("app") is None:
        return dict(data)
    ours = describe_app()
    told = {key: value for key, value in data.items() if key not in ours or value != ours[key]}
    return {**told, "defense": OWN} if told.get("defense", [{"name": OWN}]) == [{"name": OWN}] else told


@dataclass(frozen=True)
class AppTarget(Target):
    """A Flower app that runs unchanged.

    Args:
        section: its section of the suite.
    """

    section: AppSection

    undefended = OWN
    silences = False

    def check(self, config: CellConfig) -> None:
        own = {"clients": {"total", "malicious", "assumed_f"}, "threat": {"knowledge"}}
        for name in (*BROUGHT, *own):
            section, usual = getattr(config, name), type(config).model_fields[name].default
            if name in own:
                ours = dict.fromkeys(own[name] & type(section).model_fields.keys())
                section, usual = (one.model_copy(update=ours) for one in (section, usual))
            if section != usual:
                keys = f" but {', '.join(sorted(own[name]))}" if name in own else ""
                raise ValueError(f"app: it brings its own {name}; expected nothing there{keys}")
        if self.section.training is None and config.observer != type(config).model_fields["observer"].default:
            raise ValueError(
                "observer: an app names neither its model nor its data, so nobody can look for them in its messages; expected "
                "nothing there. Leave it out, or say in app.training what its nodes train: {model: module:function, data: "
                "module:function, lr: 0.1}"
            )
        if config.observer.seat != "server":
            raise ValueError(
                f"observer.seat: an app's nodes hear its server alone; expected server; got {config.observer.seat}"
            )

    def reasons(self, cell: Cell, rule_sees: Sight) -> Iterator[str]:
        if cell.attack is not None and (where := acts_elsewhere(cell.attack)):
            yield (
                f"{cell.attack.name} acts on {where}, which is the app's own. Use an attack on updates, such as ipm, or a "
                "suite without an app."
            )
        if cell.inference is not None:
            yield from self._unseen(cell.inference)
        if cell.pipeline.transforms:
            yield (
                f"{cell.pipeline.transforms[0].name} is done by clients, and an app's are its own. Use mixings and rules, "
                "which the server runs."
            )

    def _unseen(self, attack: InferenceAttack) -> Iterator[str]:
        """Why an observer at an app's Grid cannot infer the nodes' data with this attack."""
        if self.section.training is None:
            yield (
                f"{attack.name} infers the clients' data from updates, for which FedGuard has to know an app's model and data, "
                "and an app names neither. Say in app.training what its nodes train: {model: module:function, data: "
                "module:function, lr: 0.1}."
            )
        if attack.active:
            yield (
                f"{attack.name} sends the clients another model, and what an app sends is its strategy's. Use an attack of a "
                "curious server, such as inverting_gradients, or a suite without an app."
            )
        if all(Sight.ROOT_DATA in needs for needs in attack.needs):
            yield f"{attack.name} needs clean examples, and an app's server has none that it names. Use a suite without an app."

    def canonical(self, cell: Cell) -> dict[str, Any]:
        config = cell.config
        return {
            "app": self.section.spec(observed=cell.inference is not None),
            **describe_app(),
            "clients": {
                "total": config.clients.total,
                "malicious": cell.malicious if cell.adversary else 0,
                "assumed_f": cell.told,
            },
            "threat": {"knowledge": list((config.threat if cell.adversary else type(config.threat)()).knowledge)},
            "attack": cell.named.spec() if cell.named else "none",
            "defense": [{"name": OWN}] if cell.own else cell.pipeline.spec(),
            **({} if cell.inference is None else {"observer": config.observer.spec()}),
        }

    def files(self) -> Mapping[str, Sequence[Path]]:
        folder = Path(self.section.folder)
        return {"app": [*folder.rglob("*.py"), *folder.glob("pyproject.toml")]}
