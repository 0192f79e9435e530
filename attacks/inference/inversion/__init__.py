"""Gradient inversion by optimisation: dummy examples whose update is that of the client."""
