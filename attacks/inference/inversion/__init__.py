"""Gradient inversion by optimization: dummy examples whose update is that of the client."""
