"""Attacks on the clients' privacy."""
