"""The page over a real store, with decisions going straight to it instead of through Temporal."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from retold.client.encryption import EncryptingCodec
from retold.console.app import console_app
from retold.console.desk import DecisionNotSentError, DecisionRefusedError, DecisionUnknownError
from retold.console.serving import StoreDesk
from retold.contracts.review import ReviewDecision, ReviewOutcome, SentDecision
from retold.policy.profile import ProfileAssembler
from retold.settings import ConsoleSettings
from retold.store.console_sessions import ConsoleSessions
from retold.store.engine import open_engine
from retold.store.migrations import migrate
from retold.store.store import Store
from tests.unit.console.seeded import BOUND, OWNER, Seeding

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
async def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "migrated.db"
    engine = open_engine(f"sqlite:///{path}")
    await migrate(engine)
    engine.dispose()
    return path


@dataclass
class Page:
    """The console as a browser meets it, one cookie jar a browser. Time stands until a test moves it."""

    store: Store
    sessions: ConsoleSessions
    seeding: Seeding
    settings: ConsoleSettings = field(default_factory=ConsoleSettings)
    codec: EncryptingCodec | None = None
    now: datetime = START
    away: bool = False
    """Temporal does not answer."""
    unanswered: bool = False
    """What is sent is taken, and the answer is lost."""
    paused: list[float] = field(default_factory=list)
    sent: list[ReviewDecision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, settings: ConsoleSettings | None = None) -> None:
        """A new process of the console: it remembers what the store does, and nothing else."""
        self.settings = settings or self.settings
        desk = StoreDesk(self.store, ProfileAssembler(self.store), self._send, bound=BOUND, owner=OWNER)
        self.application = console_app(
            desk, self.sessions, self.settings, now=lambda: self.now, pause=self._pause, codec=self.codec
        )

    def browser(
        self, *, address: str = "203.0.113.7", host: str = "localhost:8300", **headers: str
    ) -> httpx.AsyncClient:
        scheme = "https" if self.settings.secure else "http"
        transport = httpx.ASGITransport(self._answer, client=(address, 50_000), raise_app_exceptions=False)
        origin = f"{scheme}://{host}"
        usual = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
        return httpx.AsyncClient(transport=transport, base_url=origin, headers={**usual, **headers})

    async def signed_in(self, token: str, **how: Any) -> httpx.AsyncClient:
        browser = self.browser(**how)
        answer = await browser.post("/sign-in", data={"token": token})
        assert answer.status_code == 303, answer.text
        return browser

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.application(scope, receive, send)  # of now: an open browser outlives a restart

    async def _send(self, decision: ReviewDecision) -> ReviewOutcome:
        if self.away:
            raise DecisionNotSentError
        self.sent.append(decision)
        sending = SentDecision(
            review_id=decision.review_id, decision=decision, sent_as=decision.signature[:40], via="operation"
        )
        outcome = (await self.store.reviews.decide(sending, self.now)).outcome
        if self.unanswered:
            raise DecisionUnknownError
        if isinstance(outcome, ReviewOutcome):
            return outcome
        raise DecisionRefusedError(outcome.kind, outcome.why)

    async def _pause(self, seconds: float) -> None:
        self.paused.append(seconds)


@pytest.fixture
async def page(tmp_path: Path, empty_database: Path) -> AsyncIterator[Page]:
    engine = open_engine(f"sqlite:///{shutil.copy(empty_database, tmp_path / 'retold.db')}")
    store = Store(engine)
    yield Page(store, store.console_sessions, Seeding(store, engine, START))
    await store.close()


@dataclass
class Form:
    """A form of a page, with what it would send as it stands."""

    action: str
    fields: dict[str, str]


def form_of(html: str, action_prefix: str) -> Form:
    """The form whose action begins like this.

    Raises:
        LookupError: there is none.
    """
    reader = _Forms()
    reader.feed(html)
    for form in reader.forms:
        if form.action.startswith(action_prefix):
            return form
    raise LookupError(f"no form for {action_prefix}")


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "form":
            self.forms.append(Form(said.get("action") or "", {}))
        elif tag == "input" and self.forms and said.get("name") and said.get("type") != "radio":
            self.forms[-1].fields[str(said["name"])] = said.get("value") or ""


def later(**length: float) -> timedelta:
    return timedelta(**length)
