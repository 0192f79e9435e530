"""Untargeted attacks: on the update, or on the colluders' data."""
