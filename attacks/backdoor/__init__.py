"""Backdoors: a hidden function behind a trigger."""
