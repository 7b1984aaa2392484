"""The dashboard and the rules ask for metrics that there are, with labels that these have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.records import Verdict
from parity.watch import Metrics

DOCS = Path(__file__).resolve().parents[3] / "docs" / "watch"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
RULES: dict[str, Any] = yaml.safe_load((DOCS / "alerts.yml").read_text(encoding="utf-8"))

METRIC = re.compile(r"\bparity_\w+")
MATCHER = re.compile(r"(parity_\w+)\{([^}]*)\}")


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for group in RULES["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def exported() -> dict[str, set[str]]:
    """Labels by every name under which Prometheus stores a metric."""
    pytest.importorskip("prometheus_client")
    found = {}
    for family in vars(Metrics()).values():
        if hasattr(family, "_labelnames"):
            name, labels = family._name, set(family._labelnames)
            for suffix in {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family._type, [""]):
                found[name + suffix] = labels
    return found


def test_every_metric_asked_for_exists_and_every_metric_is_shown() -> None:
    there = exported()
    asked = {name for expr in expressions() for name in METRIC.findall(expr)}
    assert asked <= set(there), asked - set(there)
    shown = {name for panel in DASHBOARD["panels"] for one in panel["targets"] for name in METRIC.findall(one["expr"])}
    without = {name.removesuffix("_sum").removesuffix("_count").removesuffix("_bucket") for name in there}
    assert without <= {name.removesuffix("_bucket") for name in shown}


def test_labels_and_verdicts_are_those_of_the_metrics() -> None:
    there = exported()
    for expr in expressions():
        for name, inside in MATCHER.findall(expr):
            for label, value in re.findall(r'(\w+)!?=~?"([^"]*)"', inside):
                assert label in there[name], expr
                assert label != "verdict" or value in {str(one) for one in Verdict}
        for group in re.findall(r"by \(([^)]*)\)", expr):
            labels = {label.strip() for label in group.split(",")} - {"le"}
            assert any(labels <= there[name] for name in METRIC.findall(expr)), expr


def test_there_is_an_alarm_for_every_verdict_that_is_no_pass_and_for_silence() -> None:
    text = " ".join(rule["expr"] for group in RULES["groups"] for rule in group["rules"])
    for verdict in set(Verdict) - {Verdict.PASS}:
        assert f'verdict="{verdict}"' in text
    assert "parity_last_probe_timestamp_seconds" in text
    assert "absent(" in text


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    """An id and a place on the grid of 24 for each panel, and a data source that is chosen at import."""
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= set(DASHBOARD)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = {(x, y) for x in columns for y in rows}
        assert not cells & taken
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
