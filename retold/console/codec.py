"""`/codec/decode`: Temporal's page shows what is encrypted, to whoever is signed in here and may see every tenant.

The browser asks, not Temporal's server: histories are decrypted on their way into one person's page and nowhere else.
Only decoding is offered; nothing that Temporal's page could send needs a key.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from google.protobuf import json_format
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from temporalio.api.common.v1 import Payloads

from retold.client.encryption import EncryptingCodec, UndecryptableError
from retold.console.sign_in import Door
from retold.contracts.review import ReviewerRole

CODEC_PATH = "/codec/decode"
BODY_MAX_BYTES = 16 * 1024 * 1024
"""A page of Temporal's asks for the payloads of a whole history at once."""

_log = logging.getLogger(__name__)


class CodecEndpoint:
    """Answers `/codec/decode` for pages of the named origins; everything else goes to the console.

    Args:
        origins: where Temporal's page is, such as `http://localhost:8233`. On the console's own site: its cookie is
            sent to no other (SameSite).
    """

    def __init__(self, app: ASGIApp, codec: EncryptingCodec, door: Door, *, origins: Collection[str]) -> None:
        self._app = app
        self._codec = codec
        self._door = door
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != CODEC_PATH:
            await self._app(scope, receive, send)
            return
        answer = await self._answer(Request(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        origin = Headers(scope=request.scope).get("origin")
        if origin not in self._origins:
            return JSONResponse({"error": "pages of this origin may not ask"}, 403)
        allowed = {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Credentials": "true",
            "Vary": "Origin",
            "Cache-Control": "no-store",
        }
        if request.method == "OPTIONS":
            asked = {
                "Access-Control-Allow-Methods": "POST",
                "Access-Control-Allow-Headers": "content-type, x-namespace",
            }
            return Response(status_code=204, headers={**allowed, **asked, "Access-Control-Max-Age": "600"})
        if request.method != "POST":
            return JSONResponse({"error": "POST only"}, 405, headers=allowed)
        person = await self._door.who(request)
        if person is None:
            return JSONResponse({"error": "sign in on the reviewers' page first"}, 401, headers=allowed)
        if person.reviewer.role is not ReviewerRole.REVIEWER or person.reviewer.tenants is not None:
            return JSONResponse({"error": "histories hold every tenant's texts: not for you"}, 403, headers=allowed)
        body = await _bounded_body(request)
        if body is None:
            return JSONResponse({"error": f"more than {BODY_MAX_BYTES} bytes"}, 413, headers=allowed)
        try:
            asked_for = json_format.Parse(body, Payloads())
            decoded = Payloads(payloads=await self._codec.decode(asked_for.payloads))
        except (json_format.ParseError, UnicodeDecodeError):
            return JSONResponse({"error": "not a list of payloads"}, 400, headers=allowed)
        except UndecryptableError as error:
            return JSONResponse({"error": str(error)}, 422, headers=allowed)
        _log.info("%s had %d payloads decrypted", person.reviewer.reviewer_id, len(decoded.payloads))
        return Response(json_format.MessageToJson(decoded), media_type="application/json", headers=allowed)


async def _bounded_body(request: Request) -> bytes | None:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX_BYTES:
            return None
    return bytes(body)
