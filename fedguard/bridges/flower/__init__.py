"""Flower: attack and rule act at the Grid. What an app imports is in `fedguard.flower`."""
