"""Planner, judge, classifier and extractor over a hosted model: prompts versioned by hash, strict reading, a port."""

from retold.policy.reference.classifier import ReferenceCategoryPolicy
from retold.policy.reference.extractor import ReferenceExtractor
from retold.policy.reference.judge import ReferenceJudge
from retold.policy.reference.planner import ReferenceGapPlanner
from retold.policy.reference.port import OutputSchema, StructuredCompletion

__all__ = [
    "OutputSchema",
    "ReferenceCategoryPolicy",
    "ReferenceExtractor",
    "ReferenceGapPlanner",
    "ReferenceJudge",
    "StructuredCompletion",
]
