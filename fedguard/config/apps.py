"""The cell of an existing app: where an attack may act, and how a record stores it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedguard.config.app_section import OWN, AppSection, describe_app
from fedguard.config.cells import PlannedCell
from fedguard.contracts import Channel, InferenceAttack, PoisonAttack, Sight

#: Methods of an attack that act where an app, or a training loop that is not FedGuard's, lets no attack act; and on what.
ELSEWHERE = {
    "poison": "the clients' data",
    "prepare": "what clients settle before they train",
    "plan": "local training",
    "silent": "who takes part",
}


def acts_elsewhere(attack: PoisonAttack, sent: Collection[Channel[Any, ...]] = ()) -> str | None:
    """What an attack acts on before updates exist; None if it only changes updates, claims, or what else is ``sent``."""
    acts = [what for method, what in ELSEWHERE.items() if attack.overrides(method)]
    return next(
        iter([*acts, *(one.about for one in attack.lies if one.listener != "everybody" and one not in sent)]), None
    )


@dataclass(frozen=True)
class AppCell(PlannedCell):
    """An app or job of a framework that runs unchanged."""

    undefended = OWN
    silences = False

    @property
    def section(self) -> AppSection:
        """Its section of the suite."""
        assert self.config.app is not None
        return self.config.app

    def reasons(self) -> Iterator[str]:
        if self.attack is not None and (where := acts_elsewhere(self.attack)):
            yield (
                f"{self.attack.name} acts on {where}, which is the app's own. Use an attack on updates, such as ipm, or a "
                "suite without an app."
            )
        if self.inference is not None:
            yield from self._unseen(self.inference)
        if self.pipeline.transforms:
            yield (
                f"{self.pipeline.transforms[0].name} is done by clients, and an app's are its own. Use mixings and rules, "
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

    def content(self) -> dict[str, Any]:
        config = self.config
        return {
            "app": self.section.spec(observed=self.inference is not None),
            **describe_app(self.section.framework),
            "clients": {
                "total": config.clients.total,
                "malicious": self.malicious if self.adversary else 0,
                "assumed_f": self.assumed_f,
            },
            "threat": {"knowledge": list((config.threat if self.adversary else type(config.threat)()).knowledge)},
            "attack": self.named.spec() if self.named else "none",
            "defense": [{"name": OWN}] if self.own else self.pipeline.spec(),
            **({} if self.inference is None else {"observer": config.observer.spec()}),
        }

    def files(self) -> Mapping[str, Sequence[Path]]:
        folder = Path(self.section.path)
        if self.section.framework == "nvflare":  # all of a job is its configuration and its code
            return {"app": [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]}
        return {"app": [*folder.rglob("*.py"), *folder.glob("pyproject.toml")]}
