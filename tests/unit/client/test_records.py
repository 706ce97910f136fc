"""What a host's own calls send: no server is asked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.client import Client

from retold.client._records import Records
from retold.contracts.lifecycle import LifecycleReport, RememberInput, SupersedeInput, WriteOutcome
from retold.contracts.record import MemoryRecord, RecordType, RecordWrite, Source
from retold.contracts.turn import Principal

ADA = Principal(tenant="acme", user="ada")
TEXT = "Lives in Ghent."


class Sent:
    """A Temporal client that keeps what it was given."""

    def __init__(self) -> None:
        self.arguments: list[Any] = []

    async def execute_workflow(self, workflow: str, argument: Any, **_: Any) -> LifecycleReport:
        self.arguments.append(argument)
        return LifecycleReport(outcomes=(WriteOutcome(index=0, disposition="unchanged"),))


@pytest.mark.parametrize(
    ("given", "sent"),
    [({}, Source.HOST), ({"source": Source.IMPORT}, Source.IMPORT), ({"source": "host"}, Source.HOST)],
)
async def test_what_a_host_says_is_its_own_statement_unless_it_says_otherwise(
    given: dict[str, Any], sent: Source
) -> None:
    client = Sent()
    records = Records(cast(Client, client))
    await records.remember(ADA, TEXT, **given)
    await records.remember_many(ADA, [RecordWrite(text=TEXT, **given)])
    await records.supersede(ADA, "r", RecordWrite(text=TEXT, **given), reason="moved")
    one, many, by = client.arguments
    assert isinstance(one, RememberInput)
    assert isinstance(many, RememberInput)
    assert isinstance(by, SupersedeInput)
    assert [one.records[0].source, many.records[0].source, by.by.source] == [sent, sent, sent]


@pytest.mark.parametrize("text", ["", " ", "\u200b\u2060\ufeff", "\u202e\n\x1b", "\u2028 \u3000"])
async def test_what_shows_nothing_is_blank(text: str) -> None:
    with pytest.raises(ValueError, match="must not be empty or blank"):
        await Records(cast(Client, Sent())).remember(ADA, text)


def test_what_was_stored_before_that_was_refused_stays_readable() -> None:
    stored = MemoryRecord(
        id="r",
        tenant="acme",
        user="ada",
        type=RecordType.SEMANTIC,
        subject="user",
        text="\u200b",
        created_at=datetime.now(UTC),
    )
    assert stored.text == "\u200b"
