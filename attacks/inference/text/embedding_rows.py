"""The tokens of a batch by the rows of the embedding that have a gradient (Melis et al., IEEE S&P 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.attacks.inference.text.tokens import embedding
from fedguard.contracts import ONE_VECTOR, InferenceAttack, InferenceView
from fedguard.contracts.inference import RecoveredText
from fedguard.contracts.tasks import select_trained
from fedguard.errors import PreconditionError


@dataclass(frozen=True, kw_only=True)
class EmbeddingRows(InferenceAttack):
    """Claims each token whose row in the trained embedding has moved: others have no gradient at all.

    The gradient by the embedding's row v is the sum over the places of token v. So every size of batch and any
    number of steps shows each token that a client used, and no other one, unless the embedding is frozen, as under adapters,
    tied to the last layer, or covered by noise.
    """

    name = "embedding_rows"
    source = "Melis et al., Exploiting Unintended Feature Leakage in Collaborative Learning, IEEE S&P 2019"
    goal = "text"
    needs = ONE_VECTOR

    def check(self, view: InferenceView) -> None:
        _place(view)

    def infer(self, view: InferenceView) -> RecoveredText:
        moved = view.target[_place(view)].view(embedding(view).num_embeddings, -1).any(1)
        return RecoveredText(moved.nonzero()[:, 0])


def _place(view: InferenceView) -> slice:
    """The coordinates of the embedding in an update."""
    weight, start = embedding(view).weight, 0
    for parameter in select_trained(view.module).values():
        if parameter is weight:
            return slice(start, start + parameter.numel())
        start += parameter.numel()
    raise PreconditionError("embedding_rows: expected an embedding that is trained; it is frozen. Take dager.")
