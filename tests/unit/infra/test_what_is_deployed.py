"""Dashboards, alerts and metrics agree with each other and with the code, without any tool but a parser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from infra import metrics_table
from infra.grafana import panels
from infra.grafana.build import DASHBOARDS
from infra.grafana.panels import Dashboard
from infra.grafana.queries import IN_HAND
from retold.contracts.disposition import Disposition, Reason
from retold.settings import WorkerSettings
from retold.telemetry.metrics import INSTRUMENTS, Instrument

ROOT = Path(__file__).parents[3]
INFRA = ROOT / "infra"
RULES = yaml.safe_load((INFRA / "prometheus" / "rules" / "retold.yml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}
RECORDED = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}
SCALER = yaml.safe_load((INFRA / "kubernetes" / "base" / "worker-scaling.yaml").read_text())
NOT_OURS = {"up": {"job"}} | {each.name: set(each.attributes) for each in metrics_table.SDK_METRICS}
"""Prometheus' own and the SDK's, with the labels that may be asked for."""
DECISIONS = "retold_turn_decisions_total"
CLOSED = {"reason": {each.value for each in Reason}, "disposition": {each.value for each in Disposition}}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)
def test_the_dashboards_are_what_their_table_builds(dashboard: Dashboard) -> None:
    written = panels.path(dashboard).read_text()
    assert written == panels.text(dashboard), "run python -m infra.grafana.build"
    drawn = json.loads(written)["panels"]
    assert len({panel["id"] for panel in drawn}) == len(drawn)
    boxes = [(p["gridPos"]["x"], p["gridPos"]["y"], p["gridPos"]["w"], p["gridPos"]["h"]) for p in drawn]
    for index, (x, y, w, h) in enumerate(boxes):
        assert x + w <= panels.COLUMNS
        for x2, y2, w2, h2 in boxes[index + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y, "two panels overlap"


def _queries() -> Iterator[tuple[str, str]]:
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            yield from ((f"{dashboard.uid}: {panel.title}", query) for query in panel.queries.values())
    for group in RULES["groups"]:
        yield from ((rule.get("alert") or rule["record"], rule["expr"]) for rule in group["rules"])
    for trigger in SCALER["spec"]["triggers"]:
        if trigger["type"] == "prometheus":
            yield "what workers are scaled by", trigger["metadata"]["query"]


@pytest.mark.parametrize(("where", "query"), list(_queries()))
def test_every_query_parses_and_asks_for_metrics_and_labels_that_exist(where: str, query: str) -> None:
    parsed = promql_parser.parse(query.replace("$__rate_interval", "5m"))
    selectors = list(_selectors(parsed))
    assert selectors, "a query that selects nothing"
    for name, labels in selectors:
        if name in RECORDED:
            continue
        known = NOT_OURS.get(re.sub(r"_(bucket|count)$", "", name)) or set(_instrument(name).attributes)
        unknown = set(labels) - known - {"le", "job", "instance"}
        assert not unknown, f"{name} has no label {unknown}"
        for label, words in CLOSED.items():
            named = set(labels.get(label, "").split("|")) - {""}
            assert name != DECISIONS or named <= words, f"no turn has {label} {named - words}"


def test_every_alert_has_a_test_that_fires_it_and_every_metric_that_wakes_somebody_an_alert() -> None:
    tests = yaml.safe_load((INFRA / "prometheus" / "tests" / "retold_test.yml").read_text())["tests"]
    fired = {each["alertname"] for test in tests for each in test["alert_rule_test"] if each["exp_alerts"]}
    assert set(ALERTS) == fired
    woken_by = [each.alert for each in INSTRUMENTS] + [each.alert for each in metrics_table.SDK_METRICS]
    named = {name for alert in woken_by for name in re.findall(r"(?:Retold|Temporal)[A-Za-z]+", alert)}
    assert named <= set(ALERTS), "a table of metrics names an alert that the rules do not have"
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("page", "ticket"), name


def test_workers_are_scaled_before_they_shed() -> None:
    """The threshold cannot be written as a share of what a worker may hold: it follows the default by hand."""
    (in_hand,) = (trigger for trigger in SCALER["spec"]["triggers"] if trigger["type"] == "prometheus")
    assert IN_HAND in in_hand["metadata"]["query"], "what scales workers is what the dashboard shows"
    assert float(in_hand["metadata"]["threshold"]) == 0.75 * WorkerSettings().concurrent_turns
    assert WorkerSettings().turns_queue in IN_HAND


def test_the_table_of_metrics_is_the_codes() -> None:
    assert metrics_table.OUT.read_text() == metrics_table.text(), "run python infra/metrics_table.py"


def test_the_collector_only_wires_what_it_declares() -> None:
    collector = yaml.safe_load((INFRA / "collector" / "collector.yaml").read_text())
    service = collector["service"]
    assert set(service["extensions"]) == set(collector["extensions"])
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in service["pipelines"].values() for name in pipeline[kind]}
        assert used == set(collector[kind]), f"{kind} declared and not used, or the other way round"
    for pipeline in service["pipelines"].values():
        assert pipeline["processors"][0] == "memory_limiter", "the limiter must see everything first"


def test_no_secret_is_in_the_compose_file_and_every_service_can_be_judged() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for name, service in compose["services"].items():
        environment = service.get("environment", {})
        for variable, value in environment.items():
            if re.search(r"(PASSWORD|PWD|KEY|SECRET|TOKEN)(_*FILE)?$", variable):
                assert str(value).startswith("/run/secrets/"), f"{name}: {variable} is not read from a file"
        one_shot = service.get("restart") == "on-failure:5"
        watched_from_outside = name in ("collector", "jaeger", "temporal-ui")
        assert one_shot or watched_from_outside or "healthcheck" in service, f"{name} has no health check"


def _instrument(name: str) -> Instrument:
    for instrument in INSTRUMENTS:
        base = instrument.prometheus_name
        if name == base or (instrument.kind == "histogram" and name in (f"{base}_bucket", f"{base}_count")):
            return instrument
    raise AssertionError(f"no instrument is called {name} in Prometheus")


def _selectors(node: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Metric name of every selector below a node of the parsed query, and what its labels are matched with."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name or "", {matcher.name: matcher.value for matcher in node.matchers.matchers}
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from _selectors(node.vector_selector)
    for attribute in ("lhs", "rhs", "expr"):
        if (child := getattr(node, attribute, None)) is not None:
            yield from _selectors(child)
    for child in getattr(node, "args", None) or ():
        yield from _selectors(child)
