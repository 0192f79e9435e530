"""No noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedguard.contracts import Cell, Lab, Noise, PrivacyGuarantee, RoundReport, Subject


@dataclass(frozen=True, kw_only=True)
class NoNoise(Noise):
    """No noise, and so no differential privacy."""

    name = "none"
    unit = None
    added_by = None
    words = "no noise is added, so there is no differential privacy"
    delta: ClassVar[float] = 0.0  # type: ignore[misc]

    @property
    def setting(self) -> str:
        return self.name

    def note(self, masked: bool) -> str:
        return self.words + ("; secure aggregation alone has no epsilon" if masked else "")

    def check(self, cell: Cell) -> None:
        """Nothing to check."""

    def reasons(self, cell: Cell) -> Iterator[str]:
        return iter(())

    def in_words(self, cell: Cell) -> str:
        return ""

    def account_privacy(self, cell: Cell, reports: Sequence[RoundReport], dim: int) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=None, why=self.words)

    def subjects(self, cell: Cell, lab: Lab) -> Iterator[Subject]:
        return iter(())
