"""Untargeted attacks: on the update, or on the malicious clients' data."""
