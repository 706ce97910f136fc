"""A Qdrant server's REST surface on loopback, over the client's own local mode: what the real remote client meets.

It answers the calls the server index makes and can be told to fail the next ones in the ways servers do.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qdrant_client import QdrantClient, models

Json = dict[str, Any]


class Fault(Enum):
    SERVER_ERROR = auto()
    BUSY = auto()
    SLOW = auto()
    RESET = auto()
    GARBAGE = auto()
    WRONG_DIMENSION = auto()


class QdrantStandIn:
    """Runs until :meth:`close`. `calls` counts requests by kind; faults added are spent one a request of their kind."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._faults: list[tuple[str, Fault]] = []
        self._engine = QdrantClient(":memory:")
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="qdrant-stand-in", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail_next(self, kind: str, *faults: Fault) -> None:
        self._faults.extend((kind, fault) for fault in faults)

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._engine.close()

    def next_fault(self, kind: str) -> Fault | None:
        self.calls[kind] += 1
        for at, (failing, fault) in enumerate(self._faults):
            if failing == kind:
                del self._faults[at]
                return fault
        return None

    def hang(self) -> None:
        self._closing.wait(5)

    def answer(self, kind: str, collection: str, body: Json) -> object:
        with self._lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _ANSWERS[kind](self._engine, collection, body)


def _create(engine: QdrantClient, name: str, body: Json) -> object:
    asked = models.CreateCollection.model_validate(body)
    return engine.create_collection(
        name,
        vectors_config=asked.vectors,
        sparse_vectors_config=asked.sparse_vectors,
        metadata=asked.metadata,
    )


def _upsert(engine: QdrantClient, name: str, body: Json) -> object:
    return engine.upsert(name, points=models.PointsList.model_validate(body).points)


def _delete(engine: QdrantClient, name: str, body: Json) -> object:
    selector = models.PointIdsList if "points" in body else models.FilterSelector
    return engine.delete(name, points_selector=selector.model_validate(body))


def _query(engine: QdrantClient, name: str, body: Json) -> object:
    return engine.query_batch_points(name, requests=models.QueryRequestBatch.model_validate(body).searches)


def _count(engine: QdrantClient, name: str, body: Json) -> object:
    return engine.count(name, count_filter=models.CountRequest.model_validate(body).filter, exact=True)


def _retrieve(engine: QdrantClient, name: str, body: Json) -> object:
    return engine.retrieve(name, ids=body["ids"], with_payload=True, with_vectors=bool(body.get("with_vector")))


def _scroll(engine: QdrantClient, name: str, body: Json) -> object:
    asked = models.ScrollRequest.model_validate(body)
    found, following = engine.scroll(
        name,
        scroll_filter=asked.filter,
        offset=asked.offset,
        limit=asked.limit or 10,
        with_payload=asked.with_payload or False,
        with_vectors=asked.with_vector or False,
    )
    return {"points": _plain(found), "next_page_offset": following}


def _set_payload(engine: QdrantClient, name: str, body: Json) -> object:
    return engine.set_payload(name, payload=body["payload"], points=body["points"])


def _change_aliases(engine: QdrantClient, name: str, body: Json) -> object:
    changes = models.ChangeAliasesOperation.model_validate(body).actions
    return engine.update_collection_aliases(changes)


_ANSWERS: dict[str, Callable[[QdrantClient, str, Json], object]] = {
    "exists": lambda engine, name, _: {"exists": engine.collection_exists(name)},
    "create": _create,
    "info": lambda engine, name, _: engine.get_collection(name),
    "index": lambda engine, name, body: models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED),
    "upsert": _upsert,
    "delete": _delete,
    "query": _query,
    "count": _count,
    "retrieve": _retrieve,
    "scroll": _scroll,
    "set payload": _set_payload,
    "delete vectors": lambda engine, name, body: engine.delete_vectors(name, body["vector"], body["points"]),
    "describe": lambda engine, name, body: engine.update_collection(name, metadata=body["metadata"]),
    "drop": lambda engine, name, _: engine.delete_collection(name),
    "collections": lambda engine, *_: engine.get_collections(),
    "aliases": lambda engine, *_: engine.get_aliases(),
    "change aliases": _change_aliases,
}

_ROUTES: list[tuple[str, str, str]] = [
    ("GET", r"/collections/([^/]+)/exists", "exists"),
    ("GET", r"/()collections", "collections"),
    ("GET", r"/()aliases", "aliases"),
    ("POST", r"/collections/()aliases", "change aliases"),
    ("GET", r"/collections/([^/]+)", "info"),
    ("PATCH", r"/collections/([^/]+)", "describe"),
    ("DELETE", r"/collections/([^/]+)", "drop"),
    ("PUT", r"/collections/([^/]+)", "create"),
    ("PUT", r"/collections/([^/]+)/index", "index"),
    ("PUT", r"/collections/([^/]+)/points", "upsert"),
    ("POST", r"/collections/([^/]+)/points/delete", "delete"),
    ("POST", r"/collections/([^/]+)/points/query/batch", "query"),
    ("POST", r"/collections/([^/]+)/points/count", "count"),
    ("POST", r"/collections/([^/]+)/points/scroll", "scroll"),
    ("POST", r"/collections/([^/]+)/points/payload", "set payload"),
    ("POST", r"/collections/([^/]+)/points/vectors/delete", "delete vectors"),
    ("POST", r"/collections/([^/]+)/points", "retrieve"),
]


def _handler(stand_in: QdrantStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_PATCH(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: a test's output is the test's."""

        def _serve(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            kind, collection = self._route()
            match stand_in.next_fault(kind):
                case Fault.SERVER_ERROR:
                    return self._send(500, {"status": {"error": "Service internal error: out of disk"}})
                case Fault.BUSY:
                    return self._send(429, {"status": {"error": "Rate limit exceeded"}}, {"Retry-After": "0"})
                case Fault.SLOW:
                    stand_in.hang()
                case Fault.RESET:
                    return self._reset()
                case Fault.WRONG_DIMENSION:
                    said = "Wrong input: Vector dimension error: expected dim: 4, got 256"
                    return self._send(400, {"status": {"error": said}})
                case Fault.GARBAGE:
                    return self._send_bytes(200, b'{"result": [{"poi', {})
            try:
                result = stand_in.answer(kind, collection, body)
            except ValueError as error:
                return self._send(400, {"status": {"error": f"Wrong input: {error}"}})
            self._send(200, {"result": _plain(result), "status": "ok", "time": 0.0})

        def _route(self) -> tuple[str, str]:
            path = self.path.partition("?")[0]
            for method, pattern, kind in _ROUTES:
                if method == self.command and (found := re.fullmatch(pattern, path)):
                    return kind, found.group(1)
            raise AssertionError(f"the server index made a call the stand-in does not know: {self.command} {path}")

        def _send(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
            self._send_bytes(status, json.dumps(body).encode(), headers or {})

        def _send_bytes(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {
                **headers,
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def _reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

    return Handler


def _plain(result: object) -> object:
    if isinstance(result, list):
        return [_plain(each) for each in result]
    return result.model_dump(mode="json") if hasattr(result, "model_dump") else result


@contextmanager
def stand_in() -> Iterator[QdrantStandIn]:
    running = QdrantStandIn()
    try:
        yield running
    finally:
        running.close()
