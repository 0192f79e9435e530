"""A run, to be read: rows, frames, tables. It reads records and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedguard.bench.matrix import Matrix, matrix
from fedguard.bench.record import Record
from fedguard.bench.store import RunFolder
from fedguard.errors import MissingExtra

if TYPE_CHECKING:
    import pandas

#: The figures of a row that come straight from a record's result.
FIGURES = ("final_accuracy", "best_accuracy", "worst_class_accuracy", "accuracy_drop", "attack_success")


@dataclass(frozen=True)
class Run:
    """One run folder. Its records are read once, when they are first asked for."""

    folder: RunFolder
    manifest: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, run: str | Path, store: str | Path = "runs") -> Run:
        """Open a run by its name in the store or by its path.

        Raises:
            StoreError: there is none, or its manifest cannot be read.
        """
        folder = RunFolder.find(run, Path(store))
        return cls(folder, folder.manifest())

    @property
    def name(self) -> str:
        return str(self.folder.path.name)

    @property
    def seeds(self) -> list[int]:
        return list(self.manifest["seeds"])

    @property
    def swept(self) -> list[str]:
        """The swept keys beside attack and defense."""
        return [key for key in self.manifest["swept"] if key not in ("attack", "defense")]

    @cached_property
    def _read(self) -> tuple[dict[tuple[str, int], Record], list[Path]]:
        cells = dict.fromkeys([position["cell"] for position in self.manifest["positions"]] + self.manifest["corners"])
        broken: list[Path] = []
        found = {(cell, seed): self.folder.read(cell, seed, broken.append) for cell in cells for seed in self.seeds}
        return {trial: record for trial, record in found.items() if record is not None}, broken

    @property
    def records(self) -> dict[tuple[str, int], Record]:
        """The records of this run's cells, corners included, by cell and seed."""
        return self._read[0]

    @property
    def broken(self) -> list[Path]:
        """Records that cannot be read; `fedguard run` sets them aside and runs their trials again."""
        return self._read[1]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each position of the matrix and each seed; a trial without record has the status ``missing``.

        Keys: cell, attack, defense, each other swept key, seed, status, reason, the figures (shares in [0, 1]), epsilon,
        seconds, flags (names joined by spaces).
        """
        return [self._row(position, seed) for position in self.manifest["positions"] for seed in self.seeds]

    def frame(self) -> pandas.DataFrame:
        """`rows` as a pandas data frame.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("run.frame()", "pandas", "dashboard") from None
        return pd.DataFrame(self.rows())

    def table(self, figure: str = "final_accuracy") -> Matrix:
        """The matrix of attacks and defenses for one figure: mean over seeds with its interval."""
        return matrix(self.name, self.rows(), self.swept, figure)

    def with_status(self, status: str) -> list[dict[str, Any]]:
        """The rows that are ``ok``, ``refused``, ``failed`` or ``missing``."""
        return [row for row in self.rows() if row["status"] == status]

    def _row(self, position: dict[str, Any], seed: int) -> dict[str, Any]:
        record = self.records.get((position["cell"], seed))
        result = (record or {}).get("result") or {}
        return {
            "cell": position["cell"],
            **_ordered(position["swept"], ["attack", "defense", *self.swept]),
            "seed": seed,
            "status": record["status"] if record else "missing",
            "reason": record["reason"] if record else "not run yet",
            **{figure: result.get(figure) for figure in FIGURES},
            "epsilon": record["threat_card"]["epsilon"] if record else None,
            "seconds": record["cost"]["seconds"] if record and record["cost"] else None,
            "flags": " ".join(flag["flag"] for flag in record["flags"]) if record else "",
        }


def _ordered(swept: dict[str, str], keys: Sequence[str]) -> dict[str, str]:
    return {key: swept[key] for key in keys}
