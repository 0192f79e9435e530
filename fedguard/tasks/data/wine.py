"""Wine (Aeberhard & Forina, UCI 1991), as scikit-learn ships it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedguard.contracts import Data, Dataset, Preparation
from fedguard.tasks.data.assembly import RawExamples, Scale, assemble_dataset

#: Of each measurement in the published set, to three digits: constants, whatever the clients hold.
MEAN = (13.0, 2.34, 2.37, 19.5, 99.7, 2.3, 2.03, 0.362, 1.59, 5.06, 0.957, 2.61, 747.0)
DEVIATION = (0.81, 1.11, 0.274, 3.33, 14.2, 0.624, 0.996, 0.124, 0.571, 2.31, 0.228, 0.708, 314.0)


@dataclass(frozen=True, kw_only=True)
class Wine(Data):
    """178 wines with 13 measurements each, standardized by constants, 3 classes; 36 of them for testing."""

    name = "wine"
    source = "Aeberhard & Forina, Wine, UCI 1991; in scikit-learn"

    @property
    def preparation(self) -> Preparation:
        return Preparation("given", "constants for mean, deviation and range, 3 classes")

    def load(self) -> Dataset:
        from sklearn.datasets import load_wine

        x, y = load_wine(return_X_y=True)
        scale = Scale(np.array(MEAN), np.array(DEVIATION), (-5.0, 5.0))
        return assemble_dataset("wine", RawExamples(x, y), share=36, scale=scale, classes=3)
