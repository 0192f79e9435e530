"""Attacks at test time: inputs changed a little, so that a trained model errs."""
