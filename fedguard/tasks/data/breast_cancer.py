"""Breast cancer, Wisconsin (Street et al., UCI 1993), as scikit-learn ships it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedguard.contracts import Data, Dataset, Preparation
from fedguard.tasks.data.assembly import RawExamples, Scale, assemble_dataset

#: Of each measurement in the published set, to three digits: constants, whatever the clients hold.
MEAN = (
    14.1, 19.3, 92.0, 655.0, 0.0964, 0.104, 0.0888, 0.0489, 0.181, 0.0628, 0.405, 1.22, 2.87, 40.3, 0.00704,
    0.0255, 0.0319, 0.0118, 0.0205, 0.00379, 16.3, 25.7, 107.0, 881.0, 0.132, 0.254, 0.272, 0.115, 0.29, 0.0839,
)  # fmt: skip
DEVIATION = (
    3.52, 4.3, 24.3, 352.0, 0.0141, 0.0528, 0.0796, 0.0388, 0.0274, 0.00705, 0.277, 0.551, 2.02, 45.5, 0.003,
    0.0179, 0.0302, 0.00616, 0.00826, 0.00264, 4.83, 6.14, 33.6, 569.0, 0.0228, 0.157, 0.208, 0.0657, 0.0618, 0.018,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BreastCancer(Data):
    """569 tumors with 30 measurements each, standardized by constants, 2 classes; 114 of them for testing."""

    name = "breast_cancer"
    source = "Street et al., Breast Cancer Wisconsin (Diagnostic), UCI 1993; in scikit-learn"

    @property
    def preparation(self) -> Preparation:
        return Preparation("given", "constants for mean, deviation and range, 2 classes")

    def load(self) -> Dataset:
        from sklearn.datasets import load_breast_cancer

        x, y = load_breast_cancer(return_X_y=True)
        scale = Scale(np.array(MEAN), np.array(DEVIATION), (-4.0, 13.0))
        return assemble_dataset("breast_cancer", RawExamples(x, y), share=114, scale=scale, classes=2)
