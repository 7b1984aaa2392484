"""A real Prometheus: the rules fire on what they are for and on nothing else; every panel asks what it can answer.

Prometheus is no Python package (Debian's package is `prometheus`); where it is not installed, these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.messages import verbatim
from parity.pipeline.outcome import Outcome
from parity.records import Verdict
from parity.watch import Metrics, Probe

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason="Prometheus is not installed")

DOCS = Path(__file__).resolve().parents[3] / "docs" / "watch"
RULES = DOCS / "alerts.yml"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))

# Series of an hour, a value every five minutes: the watch of `--interval 300` that the rules are written for.
STEPS = 12
PASSING = {
    **{f'parity_probes_total{{verdict="{one}"}}': f"0x{STEPS}" for one in Verdict},
    **{f'parity_last_verdict{{verdict="{one}"}}': f"0x{STEPS}" for one in Verdict},
    'parity_probes_total{verdict="PASS"}': f"0+1x{STEPS}",
    'parity_last_verdict{verdict="PASS"}': f"1x{STEPS}",
    "parity_last_probe_timestamp_seconds": f"0+300x{STEPS}",
}
SITUATIONS: dict[str, tuple[dict[str, str | None], set[str]]] = {
    "every probe passes": ({}, set()),
    "one probe diverged ten minutes ago": ({'parity_probes_total{verdict="DIVERGED"}': "0x9 1x2"}, {"TokensCorrupt"}),
    "a divergence of the day before": ({'parity_probes_total{verdict="DIVERGED"}': f"1x{STEPS}"}, set()),
    "one failed probe": ({'parity_probes_total{verdict="ERROR"}': "0x9 1x2"}, set()),
    "probes fail one after the other": ({'parity_probes_total{verdict="ERROR"}': f"0+1x{STEPS}"}, {"ProbesFail"}),
    "nothing could be judged for an hour": (
        {'parity_last_verdict{verdict="INCONCLUSIVE"}': f"1x{STEPS}"},
        {"ProbesJudgeNothing"},
    ),
    "one probe judged nothing": ({'parity_last_verdict{verdict="INCONCLUSIVE"}': "0x10 1x1"}, set()),
    "no probe for twenty minutes": ({"parity_last_probe_timestamp_seconds": "0+300x7 2100x4"}, {"ProbesStopped"}),
    "the watch is gone": ({"parity_last_probe_timestamp_seconds": None}, {"ProbesStopped"}),
    "a number has changed": (
        {'parity_change_evidence{arm="server/live",measure="length"}': f"3.2x{STEPS}"},
        {"AnswersChanged"},
    ),
    "a number may have changed": (
        {'parity_change_evidence{arm="server/live",measure="length"}': f"2.8x{STEPS}"},
        set(),
    ),
}


def case(situation: str) -> dict[str, Any]:
    """What promtool is to make of a situation after 55 minutes."""
    changed, alarms = SITUATIONS[situation]
    series = {name: values for name, values in {**PASSING, **changed}.items() if values is not None}
    firing = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alarms)]
    asked = f'count by (alertname) (ALERTS{{alertstate="firing"}})  # {situation}'
    return {
        "interval": "5m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": asked, "eval_time": "55m", "exp_samples": firing}],
    }


def test_an_alarm_fires_where_it_should_and_nowhere_else(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path / "alerts.yml")
    test = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [case(one) for one in SITUATIONS]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test), encoding="utf-8")
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def prometheus(home: Path, target: int) -> Iterator[str]:
    """A Prometheus that asks 127.0.0.1:target every 200 ms; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scrape = {"job_name": "parity", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
    config = {"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": [scrape]}
    (home / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    log = (home / "log").open("wb")
    process = subprocess.Popen(
        [str(PROMETHEUS), f"--config.file={home / 'prometheus.yml'}", f"--storage.tsdb.path={home / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=log, stderr=log, env={"PATH": os.environ["PATH"], "GOMAXPROCS": "1"},
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)
        log.close()


def answer(address: str, expression: str) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=10) as said:
        found: list[dict[str, Any]] = json.load(said)["data"]["result"]
    return found


def until_answered(address: str, expression: str, seconds: float = 60) -> list[dict[str, Any]]:
    """The first answer that is not empty."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := answer(address, expression):
                return found
        except (urllib.error.URLError, ConnectionError):  # it is still starting
            pass
        time.sleep(0.1)
    raise AssertionError(f"Prometheus had no answer to {expression} in {seconds} s")


def test_every_panel_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics._changes.labels(arm="server/live", measure="length").set(3.2)
    for name in ("corrupt", "benign"):
        metrics._findings.labels(arm="server/live", kind="row_leak", severity=name).inc(0)
    metrics._completions.labels(arm="server/live").inc(8)
    metrics._corrupt.labels(arm="server/live").set(0)
    with prometheus(tmp_path, metrics.serve(0, "127.0.0.1")) as address:
        until_answered(address, 'parity_last_verdict{verdict="DIVERGED"} == 0')
        diverged = Outcome("run-1", tmp_path, Verdict.DIVERGED, (verbatim("because"),), {})
        metrics.ended(Probe(1, time.time(), 2.0, diverged))
        metrics._completions.labels(arm="server/live").inc(8)
        until_answered(address, 'parity_last_verdict{verdict="DIVERGED"} == 1')
        assert until_answered(address, 'increase(parity_probes_total{verdict="DIVERGED"}[15m]) > 0')
        for panel in DASHBOARD["panels"]:
            for target in panel["targets"]:
                # rates need two values of a series that has moved; Grafana fills its variable in, as is done here
                assert until_answered(address, target["expr"].replace("$__rate_interval", "1m")), panel["title"]
