"""Gradient inversion by optimization: dummy examples with the same update as the client's."""
