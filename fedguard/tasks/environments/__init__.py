"""Environments, one file each: stepped many at a time in numpy; of gymnasium's own, the very states to the last bit."""
