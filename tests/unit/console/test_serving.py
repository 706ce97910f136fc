"""The page on a real socket: where it can be found, by TLS too, whose address counts, and how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from retold.cli import main
from retold.console.attempts import PER_ADDRESS
from retold.console.serving import PortTakenError, address, listen, serve
from retold.settings import ConsoleSettings
from tests.unit.console.conftest import Page


@asynccontextmanager
async def served(page: Page, settings: ConsoleSettings) -> AsyncIterator[str]:
    page.restart(settings)
    with listen(settings) as listening:
        serving = asyncio.create_task(serve(page.application, settings, listening))
        yield address(settings, listening).rstrip("/")
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(serving, 15)


async def test_it_is_where_it_says_and_stops_when_told(page: Page) -> None:
    async with served(page, ConsoleSettings(port=0)) as base, httpx.AsyncClient() as browser:
        answer = await browser.get(f"{base}/healthz")
        assert (answer.text, answer.headers.get("server")) == ("ok", None)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    async with httpx.AsyncClient() as browser:
        with pytest.raises(httpx.ConnectError):
            await browser.get(f"{base}/healthz")


async def test_it_ends_tls_itself(page: Page, tmp_path: Path) -> None:
    certificate, key = tmp_path / "page.pem", tmp_path / "page.key"
    _self_signed(certificate, key)
    settings = ConsoleSettings(port=0, certificate=certificate, certificate_key=key)
    token = await page.seeding.person()
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with served(page, settings) as base, httpx.AsyncClient(verify=trusting) as browser:
        assert base.startswith("https://127.0.0.1:")
        signed = await browser.post(f"{base}/sign-in", data={"token": token}, headers={"Origin": base})
        assert signed.status_code == 303 and "Secure" in signed.headers["set-cookie"]
        assert signed.headers["strict-transport-security"]


@pytest.mark.parametrize(("trusted", "counted_alone"), [(("127.0.0.1",), True), ((), False)])
async def test_a_proxy_is_believed_only_if_it_is_named(
    page: Page, trusted: tuple[str, ...], counted_alone: bool
) -> None:
    settings = ConsoleSettings(port=0, trusted_proxies=trusted)
    async with served(page, settings) as base, httpx.AsyncClient(headers={"Origin": base}) as browser:
        answers = [
            await browser.post(
                f"{base}/sign-in", data={"token": "wrong"}, headers={"X-Forwarded-For": f"198.51.100.{n}"}
            )
            for n in range(PER_ADDRESS + 1)
        ]
    assert (answers[-1].status_code == 401) is counted_alone


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"127.0.0.1:{port} cannot be used"):
            listen(ConsoleSettings(port=port))


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (ConsoleSettings(), "http://127.0.0.1:{port}/"),
        (ConsoleSettings(host="::1"), "http://[::1]:{port}/"),
        (ConsoleSettings(behind_tls=True, allowed_hosts=("reviews.example",)), "https://reviews.example/"),
        (
            ConsoleSettings(
                host="0.0.0.0",
                certificate=Path("a"),
                certificate_key=Path("b"),
                allowed_hosts=("reviews.example", "other.example"),
            ),
            "https://reviews.example:{port}/",
        ),
    ],
)
def test_the_address_is_one_a_browser_can_open(settings: ConsoleSettings, found: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert address(settings, listening) == found.format(port=listening.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("console", "--host", "0.0.0.0"), "the page cannot listen there: host: 0.0.0.0 can be reached from elsewhere"),
        (("console", "--port", "0"), "the store does not answer"),
    ],
)
def test_the_command_says_why_it_does_not_start(
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("RETOLD_DATA_DIR", str(tmp_path / "nothing here"))
    assert main(arguments) == 1
    refusal = capsys.readouterr().err
    assert said in refusal and refusal.count("\n") == 1


def _self_signed(certificate: Path, key: Path) -> None:
    private, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "page")]),
    )
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    encoding, shape = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key.write_bytes(private.private_bytes(encoding, shape, serialization.NoEncryption()))
