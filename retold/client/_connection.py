"""Reaching Temporal: address, namespace, TLS and API key from temporalio's own environment configuration."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import baggage, context
from temporalio.api.failure.v1 import Failure
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    SignalWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin
from temporalio.converter import DataConverter, DefaultFailureConverter, PayloadConverter
from temporalio.envconfig import ClientConfig
from temporalio.plugin import SimplePlugin
from temporalio.runtime import Runtime
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from retold.client._answers_here import AnswersHere
from retold.client.encryption import EncryptingCodec, KeyRing, ReadablePayloads, key_ring_from_environment

DEFAULT_ADDRESS = "localhost:7233"

_PASSED_THROUGH = (
    "retold",  # contracts and rules are pure; loaded once instead of per workflow (310 KB each when not)
    "opentelemetry",  # context variables must be the process's own, or spans lose their parents
    "annotated_types",
)


def retold_plugin(ring: KeyRing | None = None) -> SimplePlugin:
    """Converter and sandbox list in one place, for clients, workers and replayers alike.

    Args:
        ring: encrypts every payload, and the messages of failures, before they leave this process; None: nothing.
    """
    converter = DataConverter(payload_converter_class=ReadablePayloads, failure_converter_class=_ReadableFailures)
    if ring is not None:
        converter = dataclasses.replace(
            converter, payload_codec=EncryptingCodec(ring), failure_converter_class=_SealedFailures
        )
    return SimplePlugin(
        "retold",
        data_converter=converter,
        interceptors=[_BaggageStaysHere(), AnswersHere()],
        workflow_runner=lambda runner: _with_passthrough(runner),
    )


class _BaggageStaysHere(Interceptor):
    """What a host carries along in its baggage, a user's name perhaps, would lie in every history's headers."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _WithoutBaggage(next)


class _WithoutBaggage(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        with _no_baggage():
            return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        with _no_baggage():
            await super().signal_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        with _no_baggage():
            return await super().query_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        with _no_baggage():
            return await super().start_workflow_update(input)


@contextmanager
def _no_baggage() -> Iterator[None]:
    token = context.attach(baggage.clear())
    try:
        yield
    finally:
        context.detach(token)


class _ReadableFailures(DefaultFailureConverter):
    """Failures without the details nobody here can read.

    A host's own worker may attach details in an encoding of its own; left in, they would fail every workflow task
    that hears of the failure, and the turn would never end.
    """

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        try:
            return super().from_failure(failure, payload_converter)
        except Exception:  # noqa: BLE001 - a converter raises whatever its decoder does
            return super().from_failure(_without_details(failure), payload_converter)


class _SealedFailures(_ReadableFailures):
    """Messages and stack traces go where payloads go: into the codec. Types of errors stay readable."""

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)


def _without_details(failure: Failure) -> Failure:
    readable = Failure()
    readable.CopyFrom(failure)
    match readable.WhichOneof("failure_info"):
        case "application_failure_info":
            readable.application_failure_info.ClearField("details")
        case "canceled_failure_info":
            readable.canceled_failure_info.ClearField("details")
        case "timeout_failure_info":
            readable.timeout_failure_info.ClearField("last_heartbeat_details")
        case _:
            pass
    return readable


def _with_passthrough(runner: Any) -> Any:
    if isinstance(runner, SandboxedWorkflowRunner):
        return SandboxedWorkflowRunner(
            restrictions=SandboxRestrictions.default.with_passthrough_modules(*_PASSED_THROUGH)
        )
    return runner


def plugins(ring: KeyRing | None = None) -> list[Any]:
    """The plugin carries trace context over Temporal. Its own spans (two an activity) said nothing a stage's span
    does not, and were a sixth of a turn's CPU.
    """
    return [retold_plugin(ring), OpenTelemetryPlugin(add_temporal_spans=False)]


async def open_client(
    *,
    address: str | None = None,
    namespace: str | None = None,
    profile: str | None = None,
    lazy: bool = False,
    runtime: Runtime | None = None,
) -> Client:
    """A Temporal client with Retold's converter and tracing, encrypting if this process was given codec keys.

    What is not given comes from the environment (`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`,
    `TEMPORAL_TLS_*`) or from the profile file temporalio defines (`TEMPORAL_CONFIG_FILE`, `TEMPORAL_PROFILE`).

    Raises:
        CodecKeysError: codec keys were given and cannot be used.
    """
    found = await asyncio.get_running_loop().run_in_executor(
        None, lambda: ClientConfig.load_client_connect_config(profile=profile)
    )
    settings: dict[str, Any] = dict(found)
    settings["target_host"] = address or settings.get("target_host") or DEFAULT_ADDRESS
    if namespace is not None:
        settings["namespace"] = namespace
    return await Client.connect(**settings, plugins=plugins(key_ring_from_environment()), lazy=lazy, runtime=runtime)
