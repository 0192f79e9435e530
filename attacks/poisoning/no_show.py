"""Lying about one's availability; FedGuard's own."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import DataView, PoisonAttack, Sight


@dataclass(frozen=True, kw_only=True)
class NoShow(PoisonAttack):
    """Says that it is there, is asked to train, and never reports.

    It checks in wherever devices do, be it there or not, takes the place of an honest one, and is waited for. Where o times as
    many devices are asked as are needed and a share f of them never report, a round has what it needs as long as
    $o (1 - f) >= 1$; else it lasts to the end of its window, and is abandoned where $o (1 - f)$ is below the least. Nothing
    false reaches the rule, so no rule helps.
    """

    name = "no_show"
    source = "FedGuard; the report window is of Bonawitz et al., Towards Federated Learning at Scale, MLSys 2019"
    needs = (Sight.OWN_DATA,)

    def reports(self) -> bool:
        return False

    def silent(self, view: DataView) -> bool:
        return True
