"""Real processes held against the simulation: the same cell and seed, and so the same batches, over a real engine."""
