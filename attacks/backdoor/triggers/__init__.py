"""Triggers: the change of the input that a backdoor answers to."""
