"""The small model's own process: one request at a time, one JSON object a line on stdin and stdout.

Run by path, never imported, so that a worker holds neither the runtime nor its threads. It needs nothing of this
package: only the standard library and `xllamacpp`.

    in   {"id": 7, "messages": [{"role": ..., "content": ...}], "max_tokens": 48}     {"cancel": 7}
    out  {"ready": true}  or  {"failed": "why"}  once, then for each request that nobody cancelled
         {"id": 7, "text": ..., "finish": "stop", "prompt_tokens": 67, "completion_tokens": 18}
         {"id": 7, "error": "exceed_context_size_error", "detail": "..."}

End of input ends the process at once, in the middle of a generation too: a parent that was killed closes the pipe.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import secrets
import signal
import sys
import threading
from typing import Any, TextIO

Request = dict[str, Any]


def main() -> None:
    options = _options()
    # Ctrl-C reaches the whole terminal group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = _own_stdout()
    try:
        server = _load(options)
    except Exception as error:  # noqa: BLE001 - whatever the runtime raises, the parent is told instead of a traceback
        _say(replies, {"failed": f"{type(error).__name__}: {error}"})
        sys.exit(1)
    _say(replies, {"ready": True})
    inbox = Inbox()
    threading.Thread(target=inbox.read, args=(sys.stdin,), daemon=True).start()
    while True:
        request = inbox.next()
        reply = _answer(server, request, inbox)
        if not inbox.done(request["id"]):
            _say(replies, {"id": request["id"], **reply})


class Inbox:
    """Requests in the order they came, and which of them nobody waits for any more."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[int] = set()
        self._cancelled: set[int] = set()

    def read(self, lines: TextIO) -> None:
        for line in lines:
            message = json.loads(line)
            with self._lock:
                if "cancel" in message:
                    self._cancelled |= self._open & {message["cancel"]}
                    continue
                self._open.add(message["id"])
            self._requests.put(message)
        os._exit(0)

    def next(self) -> Request:
        while True:
            request = self._requests.get()
            if not self.cancelled(request["id"]):
                return request
            self.done(request["id"])

    def cancelled(self, id: int) -> bool:
        with self._lock:
            return id in self._cancelled

    def done(self, id: int) -> bool:
        """Forget the request; whether it had been cancelled."""
        with self._lock:
            was_cancelled = id in self._cancelled
            self._open.discard(id)
            self._cancelled.discard(id)
            return was_cancelled


def _answer(server: Any, request: Request, inbox: Inbox) -> dict[str, Any]:
    reply: dict[str, Any] = {"text": "", "finish": None, "prompt_tokens": 0, "completion_tokens": 0}
    errors: list[dict[str, Any]] = []

    def take(chunk: dict[str, Any]) -> bool:
        """Collect one streamed chunk; True stops the generation."""
        if "error" in chunk:
            errors.append(chunk["error"])
            return True
        for choice in chunk.get("choices", ()):
            reply["text"] += choice.get("delta", {}).get("content") or ""
            reply["finish"] = choice.get("finish_reason") or reply["finish"]
        if usage := chunk.get("usage"):
            reply["prompt_tokens"] = usage["prompt_tokens"]
            reply["completion_tokens"] = usage["completion_tokens"]
        return inbox.cancelled(request["id"])

    body = {
        "messages": request["messages"],
        "max_tokens": request["max_tokens"],
        # Both are needed for the same bytes on every run: with the prompt cache, repeated prompts can differ.
        "temperature": 0,
        "cache_prompt": False,
        # Streamed only so that a cancelled request can be stopped between two tokens.
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    try:
        returned = server.handle_chat_completions(body, take)
    except Exception as error:  # noqa: BLE001 - one bad request must not end the process for the others
        return {"error": type(error).__name__, "detail": str(error)}
    if isinstance(returned, dict) and "error" in returned:
        errors.append(returned["error"])
    if errors:
        return {"error": str(errors[0].get("type", "error")), "detail": str(errors[0].get("message", ""))}
    return reply


def _load(options: argparse.Namespace) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.n_ctx = options.context_tokens
    params.n_parallel = 1
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.cache_ram_mib = 0
    params.verbosity = -1
    # The runtime always opens a listener on the loopback interface. Nobody else on this machine gets to use it.
    params.api_keys = [secrets.token_hex(16)]
    params.endpoint_slots = False
    return xllamacpp.Server(params)


def _own_stdout() -> TextIO:
    """Keep the pipe for replies alone: what the runtime prints to descriptor 1 goes where stderr goes."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    return replies


def _say(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serve one small model over stdin and stdout.")
    parser.add_argument("--model", required=True, help="path of the GGUF file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context-tokens", type=int, default=2048)
    return parser.parse_args()


if __name__ == "__main__":
    main()
