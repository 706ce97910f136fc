"""A dashboard as it is written here, and as Grafana reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "dashboards"
COLUMNS = 24


@dataclass(frozen=True)
class Panel:
    title: str
    queries: dict[str, str]
    """Legend to PromQL."""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    description: str = ""
    stacked: bool = False
    exemplars: bool = False
    thresholds: tuple[tuple[str, float | None], ...] = (("green", None),)


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    panels: list[Panel] = field(default_factory=list)


def built(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana reads it: panels flow left to right, each row as tall as its tallest."""
    panels: list[dict[str, Any]] = []
    x = y = row_height = 0
    for number, panel in enumerate(dashboard.panels, start=1):
        if x + panel.width > COLUMNS:
            x, y, row_height = 0, y + row_height, 0
        panels.append(_panel(panel, number, x, y))
        x, row_height = x + panel.width, max(row_height, panel.height)
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["retold"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "utc",
        "links": [{"type": "dashboards", "tags": ["retold"], "title": "Retold", "asDropdown": True}],
        "panels": panels,
    }


def text(dashboard: Dashboard) -> str:
    return json.dumps(built(dashboard), indent=1, sort_keys=True) + "\n"


def path(dashboard: Dashboard) -> Path:
    return OUT / f"{dashboard.uid.removeprefix('retold-')}.json"


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "prometheus"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": [
            {
                "refId": chr(65 + place),
                "datasource": source,
                "expr": expr,
                "legendFormat": legend,
                "exemplar": panel.exemplars,
            }
            for place, (legend, expr) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": [{"color": c, "value": v} for c, v in panel.thresholds]},
                "custom": {"stacking": {"mode": "normal"}, "fillOpacity": 25} if panel.stacked else {},
            },
            "overrides": [],
        },
        "options": {},
    }
