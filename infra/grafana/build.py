"""Writes the dashboards. They are code here and JSON there: `python -m infra.grafana.build` after a change.

A test builds them again and compares, checks every query with a PromQL parser, and knows every metric by the table in
`retold.telemetry.metrics`.
"""

from __future__ import annotations

from infra.grafana.panels import OUT, Dashboard, Panel, path, text
from infra.grafana.queries import (
    ADMISSIONS,
    GIVEN,
    IN_HAND,
    LATE,
    OVERLOADED,
    PLANNED,
    TURNS,
    WITHHELD,
    increase,
    quantile,
    rate,
    share,
)

DASHBOARDS = [
    Dashboard(
        "retold-turns",
        "Retold / Turns",
        [
            Panel("Turns a second", {"turns": rate(TURNS)}, "reqps", "stat", 3, 4),
            Panel(
                "Without an answer",
                {"failed": share('disposition="failed"', TURNS)},
                "percentunit",
                "stat",
                3,
                4,
                thresholds=(("green", None), ("red", 0.01)),
            ),
            Panel(
                "Memory in the answer",
                {"regenerated": share('disposition="regenerated"', TURNS)},
                "percentunit",
                "stat",
                3,
                4,
            ),
            Panel(
                "Stage failed",
                {"failed": share('disposition="baseline_policy_failure"', TURNS)},
                "percentunit",
                "stat",
                3,
                4,
                thresholds=(("green", None), ("red", 0.02)),
            ),
            Panel(
                "Budget ran out",
                {"withheld": share(WITHHELD, TURNS, GIVEN)},
                "percentunit",
                "stat",
                3,
                4,
                thresholds=(("green", None), ("orange", 0.2)),
            ),
            Panel(
                "Overloaded",
                {"overloaded": OVERLOADED},
                "percentunit",
                "stat",
                3,
                4,
                "Drafts that went out without memory because workers had too many turns at once.",
                thresholds=(("green", None), ("orange", 0.01), ("red", 0.05)),
            ),
            Panel(
                "Late",
                {"late": LATE},
                "percentunit",
                "stat",
                3,
                4,
                thresholds=(("green", None), ("red", 0.02)),
            ),
            Panel(
                "Began twice",
                {"redelivered": rate("retold_turn_redelivered_total") + " / " + rate(TURNS)},
                "percentunit",
                "stat",
                3,
                4,
                thresholds=(("green", None), ("red", 0.02)),
            ),
            Panel(
                "What became of turns",
                {"{{disposition}}": rate(TURNS, "disposition")},
                "reqps",
                width=12,
                height=9,
                stacked=True,
            ),
            Panel(
                "Why the draft went out unchanged",
                {"{{reason}}": rate(TURNS, "reason", 'disposition!="regenerated"')},
                "reqps",
                width=12,
                height=9,
                stacked=True,
            ),
            Panel("Durability", {"{{durability}}": rate(TURNS, "durability")}, "reqps"),
            Panel("Shadow and served", {"shadow={{shadow}}": rate(TURNS, "shadow")}, "reqps"),
            Panel("Answered before they were on record", {"late": rate("retold_turn_recorded_late_total")}, "reqps"),
        ],
    ),
    Dashboard(
        "retold-latency",
        "Retold / Latency and budget",
        [
            Panel(
                "Added to turns with gaps",
                {
                    "p50": quantile(0.5, "retold_turn_added_latency_seconds", where='gaps="yes"'),
                    "p95": quantile(0.95, "retold_turn_added_latency_seconds", where='gaps="yes"'),
                    "p99": quantile(0.99, "retold_turn_added_latency_seconds", where='gaps="yes"'),
                },
                "s",
                width=12,
                exemplars=True,
            ),
            Panel(
                "Added to turns without",
                {
                    "p50": quantile(0.5, "retold_turn_added_latency_seconds", where='gaps="no"'),
                    "p95": quantile(0.95, "retold_turn_added_latency_seconds", where='gaps="no"'),
                },
                "s",
                width=12,
                exemplars=True,
            ),
            Panel(
                "Stages, p50",
                {"{{stage}}": quantile(0.5, "retold_turn_stage_duration_seconds", "stage")},
                "s",
                width=12,
            ),
            Panel(
                "Stages, p95",
                {"{{stage}}": quantile(0.95, "retold_turn_stage_duration_seconds", "stage")},
                "s",
                width=12,
                exemplars=True,
            ),
            Panel(
                "Budgets asked for",
                {
                    "p50": quantile(0.5, "retold_turn_budget_requested_seconds"),
                    "p95": quantile(0.95, "retold_turn_budget_requested_seconds"),
                },
                "s",
            ),
            Panel(
                "Share of the budget used, p95",
                {"p95": quantile(0.95, "retold_turn_budget_used")},
                "percentunit",
                description="Above 100 % turns are late.",
            ),
            Panel("Budget ran out", {"{{reason}}": rate(TURNS, "reason", WITHHELD)}, "reqps", stacked=True),
            Panel(
                "Stages that failed",
                {"{{stage}} {{kind}}": rate("retold_turn_stage_failures_total", "stage, kind")},
                "reqps",
                width=12,
            ),
            Panel(
                "Threads of blocking policies",
                {"{{pool}} {{state}}": "sum by (pool, state) (retold_policy_blocking_threads)"},
                width=12,
            ),
        ],
    ),
    Dashboard(
        "retold-quality",
        "Retold / Decisions",
        [
            Panel(
                "Turns whose plan found gaps",
                {"fired": "1 - " + share('reason=~"planner_silent|inventory_empty"', TURNS, PLANNED)},
                "percentunit",
            ),
            Panel(
                "Judged turns that admitted",
                {
                    "served={{served}}": rate(ADMISSIONS, "served", 'admitted="yes"')
                    + " / "
                    + rate(ADMISSIONS, "served")
                },
                "percentunit",
                description="Real traffic decides what is normal here; a jump is what matters.",
            ),
            Panel("Verdicts", {"{{verdict}}": rate("retold_turn_verdicts_total", "verdict")}, "reqps", stacked=True),
            Panel(
                "Records evaluated for activation",
                {"{{outcome}}": rate("retold_activation_decisions_total", "outcome")},
                stacked=True,
            ),
            Panel("Why", {"{{reason}}": rate("retold_activation_decisions_total", "reason")}, stacked=True),
            Panel(
                "Extractor's slug and category disagree",
                {"drift": share('drifted="yes"', "retold_activation_category_assignments_total")},
                "percentunit",
            ),
            Panel(
                "Tokens", {"{{stage}} {{direction}}": rate("retold_model_tokens_total", "stage, direction")}, width=12
            ),
            Panel(
                "Cost an hour",
                {"{{stage}}": "sum by (stage) (increase(retold_model_cost_usd_total[1h]))"},
                "currencyUSD",
                width=12,
            ),
        ],
    ),
    Dashboard(
        "retold-reviews",
        "Retold / Reviews and records",
        [
            Panel("Open", {"open": 'max(retold_review_backlog{state="open"})'}, kind="stat", width=6, height=4),
            Panel(
                "Waiting for room",
                {"deferred": 'max(retold_review_backlog{state="deferred"})'},
                kind="stat",
                width=6,
                height=4,
                thresholds=(("green", None), ("red", 1)),
            ),
            Panel(
                "Oldest",
                {"age": "max(retold_review_oldest_age_seconds)"},
                "s",
                "stat",
                6,
                4,
                thresholds=(("green", None), ("orange", 3 * 86400.0), ("red", 7 * 86400.0)),
            ),
            Panel(
                "Decisions not taken",
                {"refused": "sum(increase(retold_review_refusals_total[24h]))"},
                kind="stat",
                width=6,
                height=4,
            ),
            Panel("Backlog and bound", {"{{state}}": "max by (state) (retold_review_backlog)"}, width=12),
            Panel(
                "How reviews ended",
                {"{{ended}}": "sum by (ended) (increase(retold_review_decisions_total[1h]))"},
                width=12,
                stacked=True,
            ),
            Panel(
                "Decisions not taken, by why", {"{{why}}": "sum by (why) (increase(retold_review_refusals_total[1h]))"}
            ),
            Panel("Changes the index has yet to follow", {"pending": "max(retold_index_outbox_pending)"}),
            Panel("How far the index is behind", {"age": "max(retold_index_outbox_oldest_age_seconds)"}, "s"),
            Panel(
                "Requests to forget",
                {"{{what}} {{ended}}": "sum by (what, ended) (increase(retold_forget_requests_total[1h]))"},
                width=12,
            ),
        ],
    ),
    Dashboard(
        "retold-capacity",
        "Retold / Capacity",
        [
            Panel(
                "Overloaded: went out as drafts",
                {"of the turns that asked for memory": OVERLOADED},
                "percentunit",
                width=12,
                description="Above 5 % somebody is woken. Nothing waits before workers hold three times as many turns.",
                thresholds=(("green", None), ("red", 0.05)),
            ),
            Panel(
                "Turns in hand",
                {"all": f"sum({IN_HAND})", "the fullest worker": f"max(sum by (instance) ({IN_HAND}))"},
                width=12,
                description="A worker gives worker.concurrent_turns (32) of them memory and takes three times as many.",
            ),
            Panel("Workers ready, by dependency", {"{{dependency}}": "sum by (dependency) (retold_worker_ready)"}),
            Panel("Switched off", {"{{switch}} ({{scope}})": "max by (switch, scope) (retold_switch_off)"}),
            Panel("Age of what workers know of switches", {"worst": "max(retold_switch_staleness_seconds)"}, "s"),
            Panel(
                "Slots free",
                {"{{worker_type}}": "sum by (worker_type) (temporal_worker_task_slots_available)"},
                width=12,
                description="Two a worker of turns are never used: its idle polls for sticky tasks hold them.",
            ),
            Panel(
                "Slots used", {"{{worker_type}}": "sum by (worker_type) (temporal_worker_task_slots_used)"}, width=12
            ),
            Panel(
                "Tasks wait for a worker, p95",
                {
                    "{{task_queue}}": quantile(
                        0.95, "temporal_workflow_task_schedule_to_start_latency_seconds", "task_queue"
                    ),
                    "{{task_queue}}, stages": quantile(
                        0.95, "temporal_activity_schedule_to_start_latency_seconds", "task_queue"
                    ),
                },
                "s",
                width=12,
            ),
            Panel(
                "Workflow tasks that failed",
                {"{{workflow_type}}": increase("temporal_workflow_task_execution_failed_total", "workflow_type", "5m")},
                width=12,
            ),
            Panel(
                "Requests to Temporal that failed",
                {"{{operation}}": "sum by (operation) (increase(temporal_request_failure_total[5m]))"},
                width=12,
            ),
            Panel("Sticky cache", {"{{namespace}}": "sum by (namespace) (temporal_sticky_cache_size)"}, width=12),
        ],
    ),
]


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        path(dashboard).write_text(text(dashboard))
