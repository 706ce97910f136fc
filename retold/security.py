"""Half-configured security: what a deployment meant to protect and does not. A worker refuses to start on it.

Protection that was never asked for is not refused, it is named: `retold config check` lists both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import urlsplit

from retold.client.encryption import CodecKeysError, key_ring_from_environment
from retold.contracts._base import Contract
from retold.settings import Settings

DEFAULT_TEMPORAL = "localhost:7233"


class Severity(StrEnum):
    REFUSED = "refused"
    """Something is protected by half: nothing starts."""
    OPEN = "open"
    """Nothing protects it, and nobody asked for protection: fine on one machine, not beyond."""


class Finding(Contract):
    severity: Severity
    setting: str
    message: str


class HalfConfiguredError(RuntimeError):
    """Nothing was started: the message lists every half-configured protection and how to complete it."""


def require_whole(settings: Settings, environment: Mapping[str, str] | None = None) -> None:
    """Raises HalfConfiguredError if anything is protected by half."""
    refused = [each for each in findings(settings, environment) if each.severity is Severity.REFUSED]
    if refused:
        raise HalfConfiguredError("; ".join(f"{each.setting}: {each.message}" for each in refused))


def findings(settings: Settings, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """What is protected by half, and what is open, in that order."""
    given = os.environ if environment is None else environment
    found = [
        *_temporal(given),
        *_codec(settings, given),
        *_store(settings),
        *_qdrant(settings),
        *_serving(settings, given),
        *_capture(settings),
        *_console(settings),
    ]
    return sorted(found, key=lambda each: each.severity is Severity.OPEN)


def _temporal(given: Mapping[str, str]) -> Iterator[Finding]:
    pair = ("TEMPORAL_TLS_CLIENT_CERT", "TEMPORAL_TLS_CLIENT_KEY")
    has = [any(given.get(name + suffix) for suffix in ("_PATH", "_DATA")) for name in pair]
    if has[0] != has[1]:
        missing, there = (pair[1], pair[0]) if has[0] else pair
        yield _refused(missing, f"{there} is set and this is not: mutual TLS needs both")
    tls_off = given.get("TEMPORAL_TLS", "").lower() in ("0", "false", "no")
    if tls_off and (any(has) or given.get("TEMPORAL_API_KEY")):
        yield _refused(
            "TEMPORAL_TLS", "is off while a certificate or an API key is set: it would cross the wire readable"
        )
    if not any(has) and not given.get("TEMPORAL_API_KEY") and _is_elsewhere(_temporal_host(given)):
        yield _open(
            "TEMPORAL_TLS_CLIENT_CERT_PATH", "nobody proves to Temporal who they are: any client may start turns"
        )


def _codec(settings: Settings, given: Mapping[str, str]) -> Iterator[Finding]:
    try:
        ring = key_ring_from_environment(given)
    except CodecKeysError as error:
        yield _refused("RETOLD_CODEC_KEYS", str(error))
        return
    if ring is None and _is_elsewhere(_temporal_host(given)):
        yield _open("RETOLD_CODEC_KEYS", "texts of turns lie readable in Temporal's histories: `retold codec new-key`")
    if ring is None and settings.console.codec_origins:
        yield _open("RETOLD_CONSOLE__CODEC_ORIGINS", "is set and there are no codec keys: the console decodes nothing")


def _store(settings: Settings) -> Iterator[Finding]:
    if settings.store_url is None or settings.store_url.startswith("sqlite"):
        return
    parts = urlsplit(settings.store_url)
    if parts.password:
        yield _open("RETOLD_STORE_URL", "holds a password: give it as store_password, by a file of RETOLD_SECRETS_DIR")
    if _is_elsewhere(parts.hostname or "") and "sslmode=verify" not in parts.query:
        yield _open("RETOLD_STORE_URL", "add ?sslmode=verify-full: the server's certificate is not checked")


def _qdrant(settings: Settings) -> Iterator[Finding]:
    if settings.qdrant_url is None:
        if settings.qdrant_api_key is not None:
            yield _refused("RETOLD_QDRANT_API_KEY", "is set, and no RETOLD_QDRANT_URL: the embedded index has no key")
        return
    parts = urlsplit(settings.qdrant_url)
    if settings.qdrant_api_key is None and _is_elsewhere(parts.hostname or ""):
        yield _open("RETOLD_QDRANT_API_KEY", "anybody who reaches Qdrant reads every principal's records")
    if settings.qdrant_api_key is not None and parts.scheme == "http" and _is_public(parts.hostname or ""):
        yield _refused("RETOLD_QDRANT_URL", "sends the API key over http to another network: use https")


def _serving(settings: Settings, given: Mapping[str, str]) -> Iterator[Finding]:
    if settings.development_approval is not None and _is_elsewhere(_temporal_host(given)):
        yield _refused(
            "RETOLD_DEVELOPMENT_APPROVAL",
            "a deployment does not approve itself: record a fitness result for its bundle, or run in shadow",
        )


def _capture(settings: Settings) -> Iterator[Finding]:
    if settings.capture_text:
        yield _open("RETOLD_CAPTURE_TEXT", "prompts, answers and what exceptions say go to traces and log, readable")


def _console(settings: Settings) -> Iterator[Finding]:
    if settings.console.behind_loopback:
        yield _open(
            "RETOLD_CONSOLE__BEHIND_LOOPBACK",
            "the page speaks plain http: that its port is published on loopback only is all that protects it",
        )


def _temporal_host(given: Mapping[str, str]) -> str:
    return (given.get("TEMPORAL_ADDRESS") or DEFAULT_TEMPORAL).rsplit(":", 1)[0].strip("[]")


def _is_elsewhere(host: str) -> bool:
    """Not this machine."""
    if host in ("", "localhost"):
        return False
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


def _is_public(host: str) -> bool:
    """A name with a dot that is not a cluster's own, or an address outside private networks."""
    try:
        return not ip_address(host).is_private
    except ValueError:
        return "." in host and not host.endswith((".svc", ".svc.cluster.local", ".internal", ".local"))


def _refused(setting: str, message: str) -> Finding:
    return Finding(severity=Severity.REFUSED, setting=setting, message=message)


def _open(setting: str, message: str) -> Finding:
    return Finding(severity=Severity.OPEN, setting=setting, message=message)
