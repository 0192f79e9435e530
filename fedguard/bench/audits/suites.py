"""The audit of a suite in the folder of its run, so that the bound can be read beside the claim: ``runs/<run>/audit.json``."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedguard.bench.records.reading import content, describe_error, json_of
from fedguard.bench.records.record import require_seal, to_text
from fedguard.bench.records.schema.types import Time
from fedguard.bench.records.store import RunFolder, write_atomically
from fedguard.bench.results.run import Run
from fedguard.bench.running.code import own_code
from fedguard.bench.running.environment import git_commit
from fedguard.errors import StoreError
from fedguard.privacy.audit import Audit

FILE = "audit.json"


@dataclass(frozen=True, kw_only=True)
class CellAudit:
    """One audit, and the cells that it speaks for, by what was swept."""

    cells: tuple[str, ...]
    audit: Audit

    def as_dict(self) -> dict[str, Any]:
        return {"cells": list(self.cells), **self.audit.as_dict()}


@dataclass(frozen=True, kw_only=True)
class StoredAudit:
    """An audit as it was stored.

    Attributes:
        time: time of the audit, in seconds since 1970.
        method: the method that turned scores into bounds.
        commit: commit of the audited checkout; None outside of one.
        code: the digest of the code that was audited, as records hold it.
        suite: the digest of the cells, see `suite_digest`.
        audits: one for each kind of noise.
    """

    time: Time
    method: str
    commit: str | None
    code: str
    suite: str
    audits: tuple[CellAudit, ...]

    def doubts(self, run: Run) -> list[str]:
        """Why this audit may not speak for the records of a run; a sentence each."""
        found = []
        if self.suite != suite_digest(position["cell"] for position in run.manifest["positions"]):
            found.append("The audit is of another configuration than this run: its cells differ.")
        made = {record["environment"].get("code", {}).get("fedguard") for record in run.records.values()}
        if made - {self.code}:
            found.append("The audit is of other code than that which made records of this run.")
        return found


def suite_digest(cells: Iterable[str]) -> str:
    """16 hexadecimal digits over the ids of a suite's cells, which cover all of their configuration."""
    return hashlib.sha256(" ".join(sorted(set(cells))).encode()).hexdigest()[:16]


def store_audit(folder: RunFolder, cells: Iterable[str], found: Sequence[CellAudit], method: str) -> StoredAudit:
    """Write an audit into the folder of a run, over an earlier one.

    Args:
        cells: the ids of all cells in the audited suite's matrix.

    Raises:
        StoreError: it cannot be written.
    """
    stored = StoredAudit(
        time=time.time(),
        method=method,
        commit=git_commit(),
        code=own_code(),
        suite=suite_digest(cells),
        audits=tuple(found),
    )
    path = folder.path / FILE
    said = {"schema": 1, **vars(stored), "audits": [one.as_dict() for one in found]}
    try:
        write_atomically(path, to_text(said))
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written: {error.strerror}. Fix its permissions, and audit again."
        ) from None
    return stored


def load_audit(folder: RunFolder) -> StoredAudit | None:
    """The audit in the folder of a run; None where there is none.

    Raises:
        StoreError: there is one that cannot be read.
    """
    path = folder.path / FILE
    try:
        text = content(path)
        require_seal(text)
        found = json_of(text)
        if found.get("schema") != 1:
            raise ValueError("written by another version of FedGuard")
        return _STORED.validate_python({**found, "audits": [_nest_audit(one) for one in found["audits"]]})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = (
            describe_error(error)
            if isinstance(error, ValidationError)
            else error
            if type(error) is ValueError
            else "is no audit"
        )
        raise StoreError(f"{path}: cannot be read: {why}. Run `fedguard audit SUITE` again to replace it.") from None


_STORED: TypeAdapter[StoredAudit] = TypeAdapter(StoredAudit)


def _nest_audit(flat: dict[str, Any]) -> dict[str, Any]:
    """The nested form of `CellAudit.as_dict`; an infinite bound is None in JSON."""
    audit = {key: value for key, value in flat.items() if key != "cells"}
    bound = audit["bound"]
    return {
        "cells": flat["cells"],
        "audit": {**audit, "bound": {**bound, "epsilon": math.inf if bound["epsilon"] is None else bound["epsilon"]}},
    }
