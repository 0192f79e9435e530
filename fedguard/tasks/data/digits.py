"""Handwritten digits, 8 x 8 (Alpaydin & Kaynak, UCI 1998), as scikit-learn ships them."""

from __future__ import annotations

from dataclasses import dataclass

from fedguard.contracts import Data, Dataset, Preparation
from fedguard.tasks.data.assembly import RawExamples, assemble_dataset


@dataclass(frozen=True, kw_only=True)
class Digits(Data):
    """1,797 images of handwritten digits, 8 x 8 pixels in [0, 1], 10 classes; 360 of them for testing."""

    name = "digits"
    source = "Alpaydin & Kaynak, Optical Recognition of Handwritten Digits, UCI 1998; in scikit-learn"

    @property
    def preparation(self) -> Preparation:
        return Preparation("given", "pixels of 0 ... 16, 10 classes")

    def load(self) -> Dataset:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        return assemble_dataset(
            "digits", RawExamples(x.reshape(-1, 1, 8, 8) / 16, y), share=360, value_range=(0.0, 1.0), classes=10
        )
