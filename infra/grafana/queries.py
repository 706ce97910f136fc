"""What dashboards ask Prometheus for: a few shapes of query, and the terms that several panels share."""

from __future__ import annotations


def rate(metric: str, by: str = "", where: str = "", window: str = "$__rate_interval") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{where}}}[{window}]))"


def increase(metric: str, by: str, window: str) -> str:
    return f"sum by ({by}) (increase({metric}[{window}]))"


def share(of: str, metric: str, base: str = "") -> str:
    return f"{rate(metric, where=of)} / {rate(metric, where=base)}"


def quantile(q: float, histogram: str, by: str = "", where: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {rate(histogram + '_bucket', labels, where)})"


TURNS, ADMISSIONS = "retold_turn_decisions_total", "retold_turn_admissions_total"
ASKED, GIVEN = 'reason!="budget_zero"', 'reason!~"budget_zero|overloaded"'
"""Turns that asked for memory, and those of them for which a worker had room."""
OVERLOADED = share('reason="overloaded"', TURNS, ASKED)
WITHHELD = 'disposition=~"baseline_budget_exhausted|admitted_not_applied",' + GIVEN
PLANNED = 'reason!~"path_disabled|budget_zero|overloaded|redelivered_late"'
"""Turns for which somebody said whether anything is missing."""
LATE = "1 - " + rate("retold_turn_budget_used_bucket", where='le="1.1"') + " / " + rate("retold_turn_budget_used_count")
IN_HAND = 'temporal_worker_task_slots_used{task_queue="retold-turns",worker_type=~"WorkflowWorker|ActivityWorker"}'
"""A workflow task is a whole turn in durability `turn`, an activity a stage of one in `stage`."""
