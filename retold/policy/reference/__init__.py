"""Planner and judge over a hosted model: prompts versioned by hash, strict reading, the model behind a port."""

from retold.policy.reference.judge import ReferenceJudge
from retold.policy.reference.planner import ReferenceGapPlanner
from retold.policy.reference.port import OutputSchema, StructuredCompletion

__all__ = ["OutputSchema", "ReferenceGapPlanner", "ReferenceJudge", "StructuredCompletion"]
