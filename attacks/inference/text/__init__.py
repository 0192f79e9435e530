"""Texts read off the gradients of a network of tokens."""
