"""Planner and judge for a machine without a key: a small embedder, trained heads and rules, no generative model."""

from retold.policy.local.judge import LocalJudge
from retold.policy.local.planner import LocalGapPlanner
from retold.policy.local.weights import UnreadableWeightsError, WrongEmbedderError

__all__ = ["LocalGapPlanner", "LocalJudge", "UnreadableWeightsError", "WrongEmbedderError"]
