"""Mixings: what the server does to the updates before a rule."""
