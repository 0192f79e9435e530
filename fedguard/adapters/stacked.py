"""Adapters whose weighted products are stacked and folded into the frozen weights, exactly (FLoRA)."""

from __future__ import annotations
