"""What Prometheus reads, through its own client library (extra `watch`)."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any

from parity.errors import ParityError
from parity.messages import message
from parity.records import Verdict
from parity.records.many_findings import heads
from parity.watch.loop import Probe

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class Silent:
    """Where nobody asked for metrics."""

    def ended(self, probe: Probe) -> None:
        return


class Metrics:
    """Counters and gauges of a watch, in a registry of their own.

    | metric | type | labels |
    |---|---|---|
    | `parity_probes_total` | counter | `verdict` |
    | `parity_findings_total` | counter | `arm`, `kind`, `severity` |
    | `parity_completions_total` | counter | `arm` |
    | `parity_corrupt_completions` | gauge, of the last probe | `arm` |
    | `parity_last_verdict` | gauge, 1 for the last probe's verdict, else 0 | `verdict` |
    | `parity_change_evidence` | gauge, log10 of the e-value, where a number has changed | `arm`, `measure` |
    | `parity_probe_seconds` | histogram | |
    | `parity_last_probe_timestamp_seconds` | gauge | |
    """

    def __init__(self) -> None:
        """Raises ParityError where the client library is not installed."""
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError as error:
            raise ParityError(
                message(
                    "watch.metrics_need_prometheus",
                    "metrics need the Prometheus client library, which is not installed",
                ),
                hint=message("watch.pip_install_parity", "pip install 'parity-mtp[watch]'"),
            ) from error
        self.registry: CollectorRegistry = CollectorRegistry()
        on: dict[str, Any] = {"registry": self.registry}
        self._probes = Counter("parity_probes", "Probes, by verdict.", ["verdict"], **on)
        self._findings = Counter("parity_findings", "Findings.", ["arm", "kind", "severity"], **on)
        self._completions = Counter("parity_completions", "Completions compared.", ["arm"], **on)
        self._corrupt = Gauge("parity_corrupt_completions", "Corrupt completions, last probe.", ["arm"], **on)
        self._verdict = Gauge("parity_last_verdict", "1 for the verdict of the last probe.", ["verdict"], **on)
        self._changes = Gauge(
            "parity_change_evidence", "log10 of the evidence that a number has changed.", ["arm", "measure"], **on
        )
        self._seconds = Histogram(
            "parity_probe_seconds", "How long a probe took.", buckets=(1, 3, 10, 30, 60, 180, 600, 1800), **on
        )
        self._last = Gauge("parity_last_probe_timestamp_seconds", "When the last probe began.", **on)
        for verdict in Verdict:  # so that a rate() over a verdict that has not come yet is 0, not nothing
            self._probes.labels(verdict=str(verdict))
            self._verdict.labels(verdict=str(verdict)).set(0)

    def serve(self, port: int, address: str) -> int:
        """Answer on http://address:port/metrics from a thread; the port that it became. Raises ParityError."""
        from prometheus_client import start_http_server

        try:
            server, _ = start_http_server(port, addr=address, registry=self.registry)
        except OSError as error:
            raise ParityError(
                message(
                    "watch.cannot_serve_metrics",
                    "cannot serve metrics on {address}:{port}: {strerror}",
                    address=address,
                    port=port,
                    strerror=error.strerror,
                ),
                hint=message(
                    "watch.own_address",
                    "give --metrics-address an address of this machine: 127.0.0.1, or 0.0.0.0 for all that it has",
                )
                if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
                else message("watch.choose_another_metrics", "choose another --metrics-port, 0 for any that is free"),
            ) from error
        return int(server.server_port)

    def ended(self, probe: Probe) -> None:
        self._probes.labels(verdict=str(probe.verdict)).inc()
        self._seconds.observe(probe.seconds)
        self._last.set(probe.started)
        for verdict in Verdict:
            self._verdict.labels(verdict=str(verdict)).set(verdict is probe.verdict)
        for change in probe.changes:
            self._changes.labels(arm=change.arm, measure=change.measure).set(change.log10_e)
        if probe.outcome is None:
            return
        for arm, comparison in probe.outcome.comparisons.items():
            self._completions.labels(arm=arm).inc(len(comparison.classes))
            self._corrupt.labels(arm=arm).set(len({one.key for one in heads(comparison.corrupt)}))
            for one in heads(comparison.findings):
                self._findings.labels(arm=arm, kind=str(one.kind), severity=str(one.severity)).inc()
