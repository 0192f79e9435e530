"""Differential privacy: mechanisms that describe themselves, and the accountant that adds them up."""
