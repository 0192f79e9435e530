"""Conformance: real processes compared with the simulation, on the same cell and seed and so the same batches."""
