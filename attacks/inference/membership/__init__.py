"""Was this example trained on? Attacks that score candidates, larger for a member."""
