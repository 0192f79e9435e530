"""Property inference from an update (Melis et al., S&P 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from fedguard.attacks.inference.membership.signals import BLOCK_FLOATS, local_updates
from fedguard.contracts import Examples, InferenceAttack, InferenceView, NonNegativeInt, Property, Sight
from fedguard.errors import PreconditionError

#: Number of trees of the random forest.
TREES = 50


@dataclass(frozen=True, kw_only=True)
class PropertyInference(InferenceAttack):
    """Tells whether a client holds examples of a class, by a classifier of updates that it simulates on data of its own.

    Half of the simulated clients hold the class, half do not. The attacker does not know how a client's examples are
    distributed over the classes, so each simulated client draws its shares from Dirichlet(1, ..., 1), over the classes that
    it may hold. Each has as many examples as the victim and starts from the model sent. The score is the probability that a
    random forest, fitted to their updates, assigns to the class being held. It needs each update, the models and the
    server's clean data, with the class among them.

    Args:
        label: the class; the property is that the client holds one example of it or more.
        simulated: number of simulated clients, 4 and more.
    """

    name = "property_inference"
    source = "Melis et al., Exploiting Unintended Feature Leakage in Collaborative Learning, S&P 2019"
    goal = "property"
    needs = (Sight.EACH_UPDATE | Sight.MODEL | Sight.ROOT_DATA,)

    label: NonNegativeInt = 0
    simulated: Annotated[int, Ge(4)] = 100

    def holds(self, examples: Examples) -> bool:
        return bool((examples.y == self.label).any())

    def check(self, view: InferenceView) -> None:
        held = sorted(set(view.root.y.tolist()))
        if self.label not in held or len(held) < 2:
            raise PreconditionError(
                f"{self.name}: expected root data of class {self.label} and of others; got classes {held}. Give the server "
                "more data, or ask for another label."
            )

    def infer(self, view: InferenceView) -> Property:
        from sklearn.ensemble import RandomForestClassifier

        has = torch.arange(self.simulated) % 2 == 0
        seed = int(view.rng.child("forest").numpy().integers(2**32))
        updates = self._simulate_updates(view, has)
        if not bool(torch.cat([updates, view.target[None]]).isfinite().all()):
            return Property(0.5)  # a training that diverged tells nothing
        forest = RandomForestClassifier(TREES, random_state=seed).fit(updates.numpy(), has.numpy())
        return Property(float(forest.predict_proba(view.target[None].numpy())[0, 1]))

    def _simulate_updates(self, view: InferenceView, has: Tensor) -> Tensor:
        """float32 ``[simulated, d]``: updates of clients, with the property if ``has`` is true."""
        rows = torch.stack([self._rows(view, bool(one), number) for number, one in enumerate(has)])
        blocks = torch.split(rows, max(1, BLOCK_FLOATS // len(view.model)))
        return torch.cat(
            [
                local_updates(view, view.model, view.root.x[block], view.root.y[block], view.rng.child("block", number))
                for number, block in enumerate(blocks)
            ]
        )

    def _rows(self, view: InferenceView, has: bool, number: int) -> Tensor:
        """int64 ``[B]``: the root examples, with repeats, that one simulated client holds."""
        draw = view.rng.child("client", number).torch()
        labels = view.root.y
        shares = torch.empty(view.classes).exponential_(generator=draw)  # Dirichlet(1, ..., 1) once they are normed
        shares[self.label] *= has
        weights = (shares / torch.bincount(labels, minlength=view.classes).clamp(min=1))[labels]
        rows = torch.multinomial(weights, view.count, replacement=True, generator=draw)
        if has and not self.holds(view.root[rows]):
            # A small share may draw no example of the class, but the client counts as one that holds it
            rows[0] = (labels == self.label).nonzero()[0, 0]
        return rows
