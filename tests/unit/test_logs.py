"""Expected noise stays out of the log; a real failure of the same logger does not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from retold.telemetry.logs import leave_out_expected_noise


@pytest.mark.parametrize(
    ("logger", "message", "raised", "shown"),
    [
        ("temporalio.activity", "Completing activity as failed", asyncio.CancelledError(), False),
        ("temporalio.activity", "Completing activity as failed", OSError("reset"), True),
        ("temporalio.activity", "something else", None, True),
        ("opentelemetry.context", "Failed to detach context", ValueError(), False),
        ("opentelemetry.context", "another mistake", ValueError(), True),
    ],
)
def test_noise(
    caplog: pytest.LogCaptureFixture, logger: str, message: str, raised: BaseException | None, shown: bool
) -> None:
    leave_out_expected_noise()
    leave_out_expected_noise()
    with caplog.at_level(logging.WARNING):
        logging.getLogger(logger).warning(message, exc_info=raised)
    assert [record.getMessage() for record in caplog.records] == ([message] if shown else [])
