"""Trains the weights of `retold.policy.local` from the authored corpus beside it, and from nothing else."""
