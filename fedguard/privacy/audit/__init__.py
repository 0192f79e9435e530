"""Audits of epsilon: canaries bound it from below, residuals test the noise. To read a stored one loads no method."""

from typing import TYPE_CHECKING

from fedguard.lazy import lazy_names

if TYPE_CHECKING:
    from fedguard.privacy.audit.contract import Audit, Scores
    from fedguard.privacy.audit.judge import METHODS, audit, check_audit_settings

__all__ = ["METHODS", "Audit", "Scores", "audit", "check_audit_settings"]

__getattr__ = lazy_names(__name__)
