"""The model or rule behind each role, as its settings say: in a wheel, or hosted and closed with the stack.

Each is imported where it is chosen, so that a deployment needs to install only what it uses.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from retold.policy.activation.ports import CategoryPolicy, Extractor
from retold.policy.ports import AdmissionPolicy, Embedder, GapPolicy, ServingModel
from retold.policy.reference.port import StructuredCompletion
from retold.settings import EmbedderSettings, ModelRole, Settings
from retold.telemetry.traced import TracedCompletion, TracedEmbedder

PRICES = {"usd_per_million_input_tokens", "usd_per_million_output_tokens"}
"""Of a role's settings: what no model is told."""


async def embedders(settings: Settings, stack: AsyncExitStack) -> list[Embedder]:
    """The configured one, and the one the index is or was built anew for."""
    wanted = [settings.embedder, *([] if settings.next_embedder is None else [settings.next_embedder])]
    return [
        TracedEmbedder(await _embedder(each, stack), "openai" if each.kind == "openai" else "local") for each in wanted
    ]


async def _embedder(settings: EmbedderSettings, stack: AsyncExitStack) -> Embedder:
    match settings.kind:
        case "minilm":
            from retold.models.embedding.minilm import MiniLmEmbedder

            minilm = MiniLmEmbedder.load()
            stack.push_async_callback(minilm.aclose)
            return minilm
        case "openai":
            from retold.models.embedding.hosted import HostedEmbedder

            assert settings.base_url is not None, "the settings refuse an endpoint without an address"
            hosted = await HostedEmbedder.connect(
                base_url=settings.base_url,
                model=settings.model,
                api_key=settings.api_key.get_secret_value() if settings.api_key else "",
                timeout_s=settings.timeout_ms / 1000,
            )
            stack.push_async_callback(hosted.aclose)
            return hosted
        case _:
            from retold.models.embedding.hashing import HashingEmbedder

            return HashingEmbedder()


async def serving_model(role: ModelRole, stack: AsyncExitStack) -> ServingModel:
    if role.is_local:
        from retold.models.small import SmolLmServingModel

        small = SmolLmServingModel()
        stack.push_async_callback(small.aclose)
        await small.start()
        return small
    from retold.models.hosted import HostedModelSettings, HostedServingModel

    hosted = HostedServingModel(HostedModelSettings.model_validate(role.model_dump(exclude=PRICES)))
    stack.push_async_callback(hosted.aclose)
    return hosted


def planner(role: ModelRole, embedder: Embedder, stack: AsyncExitStack, capture_text: bool) -> GapPolicy:
    if not role.is_local:
        return hosted_planner(role, stack, capture_text)
    from retold.policy.local import LocalGapPlanner

    return LocalGapPlanner(embedder)


async def judge(role: ModelRole, embedder: Embedder, stack: AsyncExitStack, capture_text: bool) -> AdmissionPolicy:
    if not role.is_local:
        return hosted_judge(role, stack, capture_text)
    from retold.policy.local import LocalJudge

    local = LocalJudge(embedder)
    await local.warm()
    return local


def hosted_planner(role: ModelRole, stack: AsyncExitStack, capture_text: bool = False) -> GapPolicy:
    """The reference planner on the model this role names; closed with the stack."""
    from retold.policy.reference.planner import ReferenceGapPlanner

    return ReferenceGapPlanner(_completion(role, stack, capture_text))


def hosted_judge(role: ModelRole, stack: AsyncExitStack, capture_text: bool = False) -> AdmissionPolicy:
    """The reference judge on the model this role names; closed with the stack."""
    from retold.policy.reference.judge import ReferenceJudge

    return ReferenceJudge(_completion(role, stack, capture_text))


def classifier(role: ModelRole, stack: AsyncExitStack, capture_text: bool) -> CategoryPolicy:
    if not role.is_local:
        from retold.policy.reference.classifier import ReferenceCategoryPolicy

        return ReferenceCategoryPolicy(_completion(role, stack, capture_text))
    from retold.policy.local.record_categories import LocalCategoryPolicy

    return LocalCategoryPolicy()


def extractor(role: ModelRole, stack: AsyncExitStack, capture_text: bool) -> Extractor:
    if not role.is_local:
        from retold.policy.reference.extractor import ReferenceExtractor

        return ReferenceExtractor(_completion(role, stack, capture_text))
    from retold.policy.local.extractor import LocalExtractor

    return LocalExtractor()


def _completion(role: ModelRole, stack: AsyncExitStack, capture_text: bool) -> StructuredCompletion:
    from retold.models.hosted import HostedCompletion, HostedModelSettings

    completion = HostedCompletion(HostedModelSettings.model_validate(role.model_dump(exclude=PRICES)))
    stack.push_async_callback(completion.aclose)
    return TracedCompletion(completion, role.provider, capture_text)
