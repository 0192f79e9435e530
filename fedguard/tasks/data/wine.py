"""Wine (Aeberhard & Forina, UCI 1991), as scikit-learn ships it."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import Data, Dataset
from fedguard.tasks.data.assembly import Part, assembled


@dataclass(frozen=True, kw_only=True)
class Wine(Data):
    """178 wines with 13 measurements each, standardised, 3 classes; 36 of them for testing."""

    name = "wine"
    source = "Aeberhard & Forina, Wine, UCI 1991; in scikit-learn"

    def load(self) -> Dataset:
        from sklearn.datasets import load_wine

        x, y = load_wine(return_X_y=True)
        return assembled("wine", Part(x, y), share=36)
