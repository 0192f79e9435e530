"""Whether a composition is legal, in FedGuard's own words, and who sees what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fedguard.api import lay_out
from fedguard.bench.records.schema.result import Measured
from fedguard.bench.running.card import threat_in_words
from fedguard.bench.running.check import explain_refusals
from fedguard.bench.running.protocol import encoding_in_words, protocol_in_words
from fedguard.errors import FedGuardError


@dataclass(frozen=True)
class CompositionCheck:
    """The facts about a composition before it runs.

    Attributes:
        mistake: why it is invalid; empty if it is valid.
        reasons: why the cell is refused; empty if it may run.
        words: the threat, who sees what, and the assumptions of the masks and the noise.
        unproven: stages that run outside their proven guarantee.
        cell: its identity; attack, defense: its position in the matrix.
        trials: number of all trials, controls included; rounds: of each.
        measure: what is drawn over the rounds.
    """

    mistake: str = ""
    reasons: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    cell: str = ""
    attack: str = ""
    defense: str = ""
    trials: int = 0
    rounds: int = 0
    measure: Measured = "accuracy"

    @property
    def legal(self) -> bool:
        return not self.mistake and not self.reasons


@st.cache_data(max_entries=200, show_spinner=False)
def judge_composition(suite: Mapping[str, Any]) -> CompositionCheck:
    """Judge the composed cell, which is the last position of the suite's matrix."""
    try:
        _, plan = lay_out(suite)
        refused = explain_refusals(plan)
    except FedGuardError as error:
        return CompositionCheck(mistake=str(error))
    position, cell = plan.positions[-1]
    verdict = cell.verdict
    reasons = verdict.reasons or ((refused[cell.id],) if cell.id in refused else ())
    words = [
        threat_in_words(cell),
        *([f"The attack sees {verdict.attack_sees.words()}."] if cell.attack else []),
        f"The rule sees {verdict.rule_sees.words()}, and assumes f = {cell.assumed_rows} of n = {cell.rows} rows.",
        *protocol_in_words(cell),
        encoding_in_words(cell) or "",
    ]
    return CompositionCheck(
        reasons=tuple(reasons),
        words=() if reasons else tuple(line for line in words if line),
        unproven=() if reasons else tuple(cell.pipeline.unproven(cell.rows, cell.assumed_rows)),
        cell=cell.id,
        attack=position["attack"],
        defense=position["defense"],
        trials=len(plan.suite.seeds) * sum(cell.id not in refused for cell in plan.cells),
        rounds=cell.training.rounds,
        measure="returns" if cell.training.algorithm.acts else "accuracy",
    )
