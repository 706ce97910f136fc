"""The image that `docker build .` makes, which has no model in it, as Kubernetes runs it: with what the ConfigMap there
names, and with nothing.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import yaml

from retold.client import Principal, TurnResult, connect
from retold.contracts.disposition import Reason
from tests.docker_engine import ROOT, image, temporal_in_a_container

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]

STRICT = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp", "--network=host")
STARTS_WITHIN_S = 60.0
PROBES = "127.0.0.1:18081"
KEY = "the-key-of-the-endpoint"
ANSWER = "Said by a model elsewhere."
ELSEWHERE_IN_A_CLUSTER = {"RETOLD_STORE_URL", "RETOLD_QDRANT_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"}
"""What this test does without: a file and the embedded engine serve here."""
TOVE = Principal(tenant="harbour", user="tove")


@pytest.fixture(scope="module")
def hosted() -> str:
    return image("RETOLD_HOSTED_IMAGE")


def test_without_a_model_named_it_ends_with_one_sentence_that_names_the_settings(hosted: str) -> None:
    ran = subprocess.run(["docker", "run", "--rm", *STRICT, hosted], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    (line,) = (ran.stdout + ran.stderr).splitlines()
    said = json.loads(line)["message"]
    for role in ("SERVING__PROVIDER", "EMBEDDER__KIND", "PLANNER__PROVIDER", "JUDGE__PROVIDER"):
        assert f"RETOLD_{role}" in said


async def test_with_what_kubernetes_configures_it_is_ready_and_answers_by_the_model_that_was_named(
    hosted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("serving", "planner", "judge", "embedder"):
        (tmp_path / f"retold_{role}__api_key").write_text(KEY)
    tmp_path.chmod(0o755)
    with temporal_in_a_container() as temporal, models() as (url, asked):
        environment = {**as_kubernetes_configures(url), "TEMPORAL_ADDRESS": temporal, "TEMPORAL_NAMESPACE": "default"}
        with worker(hosted, environment, tmp_path) as container:
            await ready(container)
            monkeypatch.setenv("TEMPORAL_ADDRESS", temporal)
            async with connect() as host:
                await host.records.remember(TOVE, "Her dentist is Dr Aksoy", actor="tove")  # else nobody plans
                turn = uuid4().hex
                result = await host.turn(TOVE, f"session-{turn}", turn, "Where is my dentist?", deadline_ms=60_000)
    assert isinstance(result, TurnResult)
    assert (result.answer, result.reason, result.recorded) == (ANSWER, Reason.PLANNER_SILENT, True)
    assert {("answers", KEY), ("decides", KEY), ("embeds", KEY)} <= asked


def as_kubernetes_configures(models: str) -> dict[str, str]:
    data = yaml.safe_load((ROOT / "infra" / "kubernetes" / "base" / "configuration.yaml").read_text())["data"]
    here = {name: value for name, value in data.items() if name not in ELSEWHERE_IN_A_CLUSTER}
    return {name: models if name.endswith("__BASE_URL") else value for name, value in here.items()}


@contextmanager
def worker(hosted: str, environment: dict[str, str], secrets: Path) -> Iterator[str]:
    """The id of its container, which is gone at the end."""
    given = {**environment, "RETOLD_WORKER__PROBES_ADDRESS": PROBES}
    variables = [f"--env={name}={value}" for name, value in given.items()]
    mounted = f"--volume={secrets}:{given['RETOLD_SECRETS_DIR']}:ro"
    command = ["docker", "run", "--detach", *STRICT, *variables, mounted, hosted]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    container = ran.stdout.strip()
    try:
        yield container
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", container], capture_output=True, timeout=60, check=True)


async def ready(container: str) -> None:
    answered = "nothing"
    try:
        async with asyncio.timeout(STARTS_WITHIN_S), httpx.AsyncClient(base_url=f"http://{PROBES}") as probes:
            while True:
                try:
                    answer = await probes.get("/readyz")
                    if answer.status_code == 200:
                        return
                    answered = answer.text
                except httpx.HTTPError as error:
                    answered = repr(error)
                await asyncio.sleep(0.5)
    except TimeoutError:
        pytest.fail(f"not ready: {answered}\n{last_words(container)}")


def last_words(container: str) -> str:
    logs = subprocess.run(["docker", "logs", container], capture_output=True, text=True, timeout=60)
    return f"{logs.stdout[-3_000:]}{logs.stderr[-3_000:]}"


@contextmanager
def models() -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """An endpoint that speaks the protocol of OpenAI, and which models it was asked for with which key."""
    asked: set[tuple[str, str]] = set()

    class Endpoint(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.add((body["model"], self.headers["Authorization"].removeprefix("Bearer ")))
            if self.path.endswith("/embeddings"):
                vector = {"object": "embedding", "embedding": [0.6, 0.8]}
                rows = [{**vector, "index": at} for at, _ in enumerate(body["input"])]
                answer = {"object": "list", "model": body["model"], "data": rows}
            else:
                text = json.dumps({"gaps": []}) if body["model"] == "decides" else ANSWER
                choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
                answer["usage"] = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
            encoded = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: object) -> None:
            """Standard output is the test's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        server.server_close()
