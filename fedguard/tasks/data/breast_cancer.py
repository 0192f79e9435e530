"""Breast cancer, Wisconsin (Street et al., UCI 1993), as scikit-learn ships it."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import Data, Dataset
from fedguard.tasks.data.assembly import Part, assembled


@dataclass(frozen=True, kw_only=True)
class BreastCancer(Data):
    """569 tumours with 30 measurements each, standardised, 2 classes; 114 of them for testing."""

    name = "breast_cancer"
    source = "Street et al., Breast Cancer Wisconsin (Diagnostic), UCI 1993; in scikit-learn"

    def load(self) -> Dataset:
        from sklearn.datasets import load_breast_cancer

        x, y = load_breast_cancer(return_X_y=True)
        return assembled("breast_cancer", Part(x, y), share=114)
