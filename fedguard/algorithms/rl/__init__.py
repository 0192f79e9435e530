"""Algorithms of reinforcement learning: what an actor computes, and what the learner makes of it."""
