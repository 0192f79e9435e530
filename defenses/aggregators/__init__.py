"""Rules that end a defense pipeline."""
