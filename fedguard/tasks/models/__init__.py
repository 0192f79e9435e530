"""Families of networks, one file each."""
