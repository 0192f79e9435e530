"""The ways a cohort is trained; `fedguard.tasks.cohort` chooses by the network."""
