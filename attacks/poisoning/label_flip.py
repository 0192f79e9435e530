"""Label flip (Biggio et al., ICML 2012; Tolpegin et al., ESORICS 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import DataView, Examples, PoisonAttack, Sight


@dataclass(frozen=True, kw_only=True)
class LabelFlip(PoisonAttack):
    """Malicious clients train honestly on wrong labels: y becomes C - 1 - y.

    $y <- C - 1 - y$, with C classes. It acts on the data alone, so the update is a true gradient of the wrong task.
    """

    name = "label_flip"
    source = "Tolpegin et al., Data Poisoning Attacks Against Federated Learning Systems, ESORICS 2020"
    needs = (Sight.OWN_DATA,)

    def poison(self, examples: Examples, view: DataView) -> Examples:
        return examples.replace(y=view.classes - 1 - examples.y)
