"""Reviews on a real Temporal server: every kind of decision, every end, and nothing left behind in a history."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.common import RawValue, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from retold.client import (
    AlreadyResolvedError,
    DecisionRefusedError,
    MalformedDecisionError,
    NotAReviewerError,
    NotPromotableError,
    ReviewNotOpenError,
    Reviews,
    ReviewWithdrawnError,
    StaleReviewError,
    UnknownResolutionError,
    UnknownReviewError,
    plugins,
    register_review_attributes,
)
from retold.contracts import names
from retold.contracts.activation import ActivationCategory
from retold.contracts.review import (
    Resolution,
    Review,
    ReviewItem,
    ReviewOutcome,
    ReviewStatus,
    ReviewStep,
)
from retold.credentials import ReviewerCredential
from retold.policy.limits import utc_now
from tests.conftest import TEMPORAL
from tests.integration.reviewing import Desk, eventually, review_desk
from tests.unit.store.review_items import SAID, SPAN, decision

ROOT = Path(__file__).resolve().parents[2]

MISSED_WITHIN_S = 14
"""A dead worker is missed after 5 s; without its beats it took the 20 s that a decision may take."""


@pytest.fixture
async def desk(client: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    await register_review_attributes(client)
    async with review_desk(client, tmp_path) as desk, desk.worker():
        yield desk


async def status(desk: Desk, review: Review) -> ReviewStatus:
    item = await desk.store.reviews.item(review.review_id, utc_now())
    assert isinstance(item, ReviewItem)
    return item.review.status


async def refusals(desk: Desk, review: Review) -> int:
    return (await desk.queue.events(review)).count("review.decision_refused")


@pytest.mark.parametrize("resolution", list(Resolution))
async def test_a_reviewer_decides_the_record_changes_and_the_workflow_ends(desk: Desk, resolution: Resolution) -> None:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    assert (await desk.reviews.state(review.review_id)).status is ReviewStatus.OPEN
    outcome = await desk.reviews.resolve(
        review.review_id, resolution, expected_version=1, reason="plain", token=rita.token
    )
    assert await desk.outcome(review) == outcome
    assert outcome.status is await status(desk, review) and outcome.resolved_by == "rita"
    ambient = await desk.store.ambient_records(review.principal, utc_now())
    assert [record.ref for record in ambient] == ([outcome.record] if resolution is Resolution.PROMOTE else [])
    await desk.replays(review)


async def test_what_a_history_keeps_is_a_signature_no_text_of_the_user_and_no_token(desk: Desk) -> None:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    with pytest.raises(StaleReviewError):
        await desk.reviews.resolve(
            review.review_id, Resolution.PROMOTE, expected_version=9, reason="plain", token=rita.token
        )
    await desk.reviews.resolve(
        review.review_id, Resolution.PROMOTE, expected_version=1, reason="plain", token=rita.token
    )
    history = (await desk.handle(review).fetch_history()).to_json()
    decoded = history + "".join(_payloads(json.loads(history)))
    signed = decision(rita, review, reason="plain").signature
    assert signed in decoded, "the test must be able to see what is there"
    for secret in (rita.token, rita.token.split(".")[2], rita.token_hash, SAID, SPAN, "short sentences"):
        assert secret not in decoded


async def test_refusals_have_types_reach_the_caller_and_the_audit_trail_and_leave_the_item_open(desk: Desk) -> None:
    review, other = await desk.opened(), await desk.opened()
    no_category = await desk.opened(category=None)
    rita, eve = await desk.queue.reviewer(), ReviewerCredential.issue("rita")
    honest = decision(rita, review)
    deferred = await desk.queue.item(bound=0)
    cases: list[tuple[type[DecisionRefusedError], Review, Any]] = [
        (StaleReviewError, review, rita.decide(review.review_id, Resolution.REJECT, expected_version=2)),
        (UnknownResolutionError, review, rita.decide(review.review_id, "burn", expected_version=1)),  # type: ignore[arg-type]
        (NotAReviewerError, review, decision(eve, review)),
        (NotAReviewerError, review, honest.model_copy(update={"reason": "altered on the way"})),
        (NotPromotableError, no_category, decision(rita, no_category)),
        (ReviewNotOpenError, deferred, decision(rita, deferred)),
    ]
    for expected, item, forged in cases:
        before = await refusals(desk, item)
        with pytest.raises(expected):
            await desk.reviews.send(forged)
        assert await refusals(desk, item) == before + 1
    with pytest.raises(UnknownReviewError):
        await desk.reviews.resolve("nothing", Resolution.REJECT, expected_version=1, reason="plain", token=rita.token)
    with pytest.raises(NotAReviewerError):
        await desk.reviews.resolve(
            review.review_id, Resolution.REJECT, expected_version=1, reason="plain", token="guess"
        )
    with pytest.raises(MalformedDecisionError, match="reason"):
        await desk.reviews.resolve(
            review.review_id, Resolution.REJECT, expected_version=1, reason="x" * 501, token=rita.token
        )
    # Signed for another item, sent to this one.
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await desk.handle(review).execute_update("resolve", decision(rita, other))
    assert isinstance(refused.value.cause, ApplicationError) and refused.value.cause.type == "NotAReviewer"
    assert await status(desk, review) is await status(desk, other) is ReviewStatus.OPEN
    named = await desk.reviews.resolve(
        no_category.review_id,
        Resolution.PROMOTE,
        expected_version=1,
        reason="plain",
        token=rita.token,
        category=ActivationCategory.ACCESSIBILITY,
    )
    assert named.status is ReviewStatus.PROMOTED
    await desk.replays(review)


async def test_of_four_at_once_one_is_taken_and_three_hear_that_somebody_was_faster(desk: Desk) -> None:
    review = await desk.opened()
    people = [await desk.queue.reviewer(f"reviewer-{number}") for number in range(4)]
    answers = await asyncio.gather(
        *(desk.reviews.send(decision(person, review)) for person in people), return_exceptions=True
    )
    taken = [answer for answer in answers if isinstance(answer, ReviewOutcome)]
    assert len(taken) == 1 and await desk.outcome(review) == taken[0]
    assert [type(answer) for answer in answers if answer not in taken] == [AlreadyResolvedError] * 3
    events = await desk.queue.events(review)
    assert events.count("record.activation_reviewed") == events.count("record.activation_changed") == 1
    assert events.count("review.decision_refused") == 3
    await desk.replays(review)


async def test_a_late_decision_is_refused_and_audited_the_same_one_again_is_answered(desk: Desk) -> None:
    review, rita, vera = await desk.opened(), await desk.queue.reviewer(), await desk.queue.reviewer("vera")
    said = decision(rita, review)
    outcome = await desk.reviews.send(said)
    await desk.outcome(review)  # it has closed
    assert await desk.reviews.send(said) == outcome
    with pytest.raises(AlreadyResolvedError, match="rita"):
        await desk.reviews.send(decision(vera, review, Resolution.REJECT))
    assert (await desk.queue.events(review)).count("record.activation_reviewed") == 1
    assert await refusals(desk, review) == 1


async def test_an_early_decision_of_an_open_item_counts_though_its_workflow_is_yet_to_start(desk: Desk) -> None:
    review, rita = await desk.queue.item(), await desk.queue.reviewer()
    outcome = await desk.reviews.send(decision(rita, review))
    assert outcome.status is ReviewStatus.PROMOTED
    await desk.workflows.sweep()  # nothing is open: nothing is started
    with pytest.raises(UnknownReviewError):
        await desk.reviews.state(review.review_id)


@pytest.mark.parametrize("resolution", list(Resolution))
async def test_a_signal_does_the_same_with_the_same_checks(desk: Desk, resolution: Resolution) -> None:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    signal = {"promote": "approve"}.get(resolution.value, resolution.value)
    handle = desk.handle(review)
    eve = ReviewerCredential.issue("rita")
    await handle.signal(signal, decision(eve, review, resolution))
    await eventually(lambda: _count(desk, review, 1))
    assert await status(desk, review) is ReviewStatus.OPEN
    await handle.signal(signal, decision(rita, review, resolution))
    assert (await desk.outcome(review)).resolved_by == "rita"


async def test_no_signal_whatever_it_carries_ends_or_wedges_the_workflow(desk: Desk) -> None:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    handle = desk.handle(review)
    garbage = RawValue(Payload(metadata={"encoding": b"nobody/knows"}, data=b"\xff\x00"))
    unstorable = {**decision(rita, review).model_dump(mode="json"), "reason": "\x00", "a\x00b": 1}
    malformed: list[list[Any]] = [
        [],
        ["approve"],
        [garbage],
        [{"review_id": 1}],
        [1, 2],
        [None],
        [[[[]]]],
        [unstorable],
    ]
    for arguments in malformed:
        await handle.signal("approve", args=arguments)
    await handle.signal("reject", decision(rita, review, Resolution.PROMOTE))
    await handle.signal("drop_tables", "now")
    await eventually(lambda: _count(desk, review, 9))
    assert (await desk.reviews.state(review.review_id)).status is ReviewStatus.OPEN
    for update_arguments in ([], ["approve"], [garbage], [1, 2]):
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update("resolve", args=update_arguments)
    await desk.reviews.send(decision(rita, review))
    await desk.replays(review)


async def test_an_item_withdrawn_with_its_record_is_refused_at_once_and_its_workflow_hears_of_it(desk: Desk) -> None:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    await desk.store.reviews.withdraw_for_records(
        [review.record.id], at=utc_now(), actor="ada", why="the user deleted it"
    )
    with pytest.raises(ReviewWithdrawnError):
        await desk.reviews.send(decision(rita, review))
    assert (await desk.outcome(review)).status is ReviewStatus.WITHDRAWN
    told = await desk.opened()
    await desk.store.reviews.withdraw_for_records([told.record.id], at=utc_now(), actor="ada", why="deleted")
    await desk.workflows.sweep()
    assert (await desk.outcome(told)).status is ReviewStatus.WITHDRAWN
    await eventually(lambda: _nothing_to_hear(desk))
    await desk.replays(told)


async def test_a_sweep_starts_what_a_crash_left_behind_and_lets_deferred_items_in(
    client: Client, tmp_path: Path
) -> None:
    async with review_desk(client, tmp_path, backlog_bound=2, owner="team") as desk, desk.worker():
        items = [await desk.queue.item(bound=2) for _ in range(3)]
        assert [item.status for item in items] == [ReviewStatus.OPEN, ReviewStatus.OPEN, ReviewStatus.DEFERRED]
        await desk.workflows.sweep()
        assert [notice.occasion.value for notice in desk.told.notices] == ["backlog_full"]
        await desk.workflows.sweep()
        assert len(desk.told.notices) == 1, "the owner is told once an hour, not at every sweep"
        for item in items[:2]:
            assert (await desk.reviews.state(item.review_id)).status is ReviewStatus.OPEN
        rita = await desk.queue.reviewer()
        await desk.reviews.send(decision(rita, items[0]))
        await desk.workflows.sweep()
        outcome = await desk.reviews.resolve(
            items[2].review_id, Resolution.REJECT, expected_version=2, reason="plain", token=rita.token
        )
        assert outcome == await desk.outcome(items[2])
        # Terminated by an operator: the row is still the truth, and a decision still counts.
        await desk.handle(items[1]).terminate()
        assert (await desk.reviews.send(decision(rita, items[1]))).status is ReviewStatus.PROMOTED


async def test_a_deferred_item_comes_to_its_own_end_while_the_queue_stays_full(client: Client, tmp_path: Path) -> None:
    async with review_desk(client, tmp_path, backlog_bound=1) as desk, desk.worker():
        open_ = await desk.queue.item(bound=1)
        deferred = await desk.queue.item(bound=1, lives_for=timedelta(seconds=1))
        await desk.workflows.sweep()
        assert await status(desk, deferred) is ReviewStatus.DEFERRED

        async def expired() -> bool:
            await desk.workflows.sweep()
            return await status(desk, deferred) is ReviewStatus.EXPIRED

        await eventually(expired)
        assert await status(desk, open_) is ReviewStatus.OPEN
        assert await desk.queue.events(deferred) == ["review.backlog_full", "review.expired"]
        rita = await desk.queue.reviewer()
        with pytest.raises(AlreadyResolvedError):
            await desk.reviews.send(decision(rita, deferred))


async def test_an_item_whose_workflow_was_terminated_still_comes_to_its_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.review_workflows.OVERDUE", timedelta(0))
    review = await desk.opened(lives_for=timedelta(seconds=2))
    await desk.handle(review).terminate("by an operator")

    async def expired() -> bool:
        await desk.workflows.sweep()
        return await status(desk, review) is ReviewStatus.EXPIRED

    await eventually(expired)
    assert (await desk.outcome(review)).status is ReviewStatus.EXPIRED


async def test_an_item_that_many_knock_at_goes_on_in_a_new_run_and_loses_no_decision(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    environment = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(TEMPORAL),
        # A history is long after so many events.
        dev_server_extra_args=["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=100"],
        dev_server_log_level="error",
        plugins=plugins(),
    )
    async with environment, review_desk(environment.client, tmp_path) as desk, desk.worker():
        review, rita = await desk.opened(), await desk.queue.reviewer()
        await desk.store.reviews.step(review.review_id, ReviewStep.REMIND, utc_now())
        first = (await desk.handle(review).describe()).run_id
        eve = ReviewerCredential.issue("rita")
        for number in range(12):
            forged = [decision(eve, review, reason=f"{number}/{at}") for at in range(3)]
            answers = await asyncio.gather(*(desk.reviews.send(each) for each in forged), return_exceptions=True)
            assert {type(answer) for answer in answers} == {NotAReviewerError}

        async def in_a_new_run() -> bool:
            return (await desk.handle(review).describe()).run_id != first

        await eventually(in_a_new_run)
        assert await refusals(desk, review) == 36

        async def knows_what_was_done_before() -> bool:
            return (await desk.reviews.state(review.review_id)).reminded

        await eventually(knows_what_was_done_before)
        outcome = await desk.reviews.send(decision(rita, review))
        assert await desk.outcome(review) == outcome
        await desk.replays(review)


async def test_a_missing_search_attribute_wedges_nothing(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from temporalio.common import SearchAttributeKey

    from activities import review_workflows

    unregistered = {name: SearchAttributeKey.for_keyword(f"{name}Unregistered") for name in names.REVIEW_ATTRIBUTES}
    monkeypatch.setattr(review_workflows, "_ATTRIBUTES", unregistered)
    async with review_desk(client, tmp_path) as desk, desk.worker():
        review, rita = await desk.opened(), await desk.queue.reviewer()
        await desk.reviews.send(decision(rita, review))
        assert (await desk.outcome(review)).status is ReviewStatus.PROMOTED


async def test_the_queue_is_listed_in_temporal_by_status_owner_tenant_and_reason(desk: Desk) -> None:
    review, rita = await desk.opened(), await desk.queue.reviewer()
    tenant = review.principal.tenant

    async def found(status: str) -> bool:
        query = (
            f"ReviewTenant = '{tenant}' AND ReviewStatus = '{status}' "
            "AND ReviewOwner = 'memory-team' AND ReviewReason = 'low_confidence'"
        )
        return [row.id async for row in desk.client.list_workflows(query)] == [f"review/{review.review_id}"]

    await eventually(lambda: found("open"))
    await desk.reviews.send(decision(rita, review))
    await eventually(lambda: found("promoted"))


async def test_a_worker_killed_between_the_transaction_and_its_report_leaves_one_resolution(
    client: Client, tmp_path: Path
) -> None:
    async with review_desk(client, tmp_path) as desk:
        review, rita = await desk.opened(), await desk.queue.reviewer()
        mortal = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.mortal_worker",
            client.service_client.config.target_host,
            desk.task_queue,
            f"sqlite:///{tmp_path / 'retold.db'}",
            cwd=ROOT,
        )
        patient = Reviews(desk.client, task_queue=desk.task_queue, answered_within_s=60)
        waiting = asyncio.create_task(patient.send(decision(rita, review)))
        try:
            assert await asyncio.wait_for(mortal.wait(), 30) == -signal.SIGKILL
        finally:
            if mortal.returncode is None:
                mortal.kill()
        assert await status(desk, review) is ReviewStatus.PROMOTED, "it died after the commit"
        async with desk.worker(), asyncio.timeout(MISSED_WITHIN_S):
            # The server gives the activity to the next worker when it misses this one's beats. The reviewer waits.
            outcome = await waiting
            assert outcome.status is ReviewStatus.PROMOTED
            assert await asyncio.wait_for(desk.handle(review).result(), 30) == outcome
        events = await desk.queue.events(review)
        assert events.count("record.activation_reviewed") == events.count("record.activation_changed") == 1
        assert "review.decision_refused" not in events
        await desk.replays(review)


async def test_the_command_decides_and_says_by_its_code_when_it_was_refused(client: Client, tmp_path: Path) -> None:
    async with review_desk(client, tmp_path) as desk, desk.worker():
        review, rita = await desk.opened(), await desk.queue.reviewer()

        async def run(*arguments: str) -> tuple[int | None, Any]:
            command = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "retold.cli",
                "--address",
                client.service_client.config.target_host,
                "review",
                *arguments,
                "--json",
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                env={
                    **os.environ,
                    "RETOLD_REVIEWER_TOKEN": rita.token,
                    "RETOLD_STORE_URL": f"sqlite:///{tmp_path / 'retold.db'}",
                    "RETOLD_WORKER__LIFECYCLE_QUEUE": desk.task_queue,
                },
            )
            out, _ = await command.communicate()
            return command.returncode, json.loads(out)

        code, refused = await run("keep", review.review_id, "--reason", "too early", "--seen-version", "9")
        assert (code, refused["refused"]) == (3, "StaleReview")
        code, outcome = await run("keep", review.review_id, "--reason", "only at work")
        assert (code, outcome["status"]) == (0, "kept_conditional")
        code, refused = await run("reject", review.review_id, "--reason", "late", "--seen-version", "1")
        assert (code, refused["refused"]) == (3, "AlreadyResolved")
        assert await refusals(desk, review) == 2


async def test_a_wrongly_started_workflow_fails_at_once(desk: Desk) -> None:
    for argument in ({"review_id": 1}, "x", None):
        handle = await desk.client.start_workflow(
            names.REVIEW_WORKFLOW,
            argument,
            id="review/wrongly-started",
            task_queue=desk.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
        await handle.signal("approve", 1)
        with pytest.raises(Exception, match="Workflow execution failed"):
            await asyncio.wait_for(handle.result(), 10)


async def _count(desk: Desk, review: Review, number: int) -> bool:
    return await refusals(desk, review) == number


async def _nothing_to_hear(desk: Desk) -> bool:
    return await desk.store.reviews.due_to_hear(10) == []


def _payloads(history: Any) -> list[str]:
    """Every payload of a history, decoded: base64 would hide what a plain search looks for."""
    import base64

    found: list[str] = []
    if isinstance(history, dict):
        data = history.get("data")
        if isinstance(data, str):
            found.append(base64.b64decode(data).decode(errors="replace"))
        for value in history.values():
            found += _payloads(value)
    elif isinstance(history, list):
        for value in history:
            found += _payloads(value)
    return found
