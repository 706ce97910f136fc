"""Templates: escaped by default, strict about what they are given, with the page's few filters."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from retold.console import untrusted, wording
from retold.contracts.review import UnreadableReview

if TYPE_CHECKING:
    from retold.console.sign_in import SignedIn

STATIC = Path(__file__).with_name("static")


class Rendering:
    """Pages from templates. `now` is what ages are counted from, the same for a whole page."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._environment = Environment(
            loader=PackageLoader("retold.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "visible": untrusted.visible,
            "spelled_out": untrusted.spelled_out,
            "utc": wording.utc,
            "happened": wording.happened,
            "because": wording.because,
        }
        self._environment.tests["unreadable"] = lambda item: isinstance(item, UnreadableReview)
        self._environment.globals |= {
            "wording": wording,
            "static": {path.name: f"/static/{path.name}?v={_digest(path)}" for path in STATIC.iterdir()},
        }

    def page(
        self,
        template: str,
        person: SignedIn | None,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **values: Any,
    ) -> Response:
        now = self._now()
        html = self._environment.get_template(template).render(
            person=person, now=now, ago=lambda at: wording.ago(at, now), **values
        )
        return HTMLResponse(html, status, headers)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
