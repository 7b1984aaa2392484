"""Tells another machine of a verdict that somebody should see."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from parity.errors import ParityError
from parity.messages import Say, message
from parity.records import Json, Verdict
from parity.watch.loop import Probe

TIMEOUT_SECONDS = 10.0
SHOWN = 20
"""Findings in a message: enough to act on, small enough for any receiver."""


class Webhook:
    """POSTs JSON to `url` for each probe whose verdict is in `verdicts`, and when a number has changed.

    The body has `text` (one line, what Slack and Mattermost show), `verdict`, `run`, `reasons`, `changes` and up to
    twenty corrupt findings. A receiver that fails is said and not retried: the next probe comes soon enough.
    """

    def __init__(self, url: str, verdicts: frozenset[Verdict], say: Say) -> None:
        """Raises ParityError for what is not an http or https address."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ParityError(
                message("watch.webhook_not_http", "the webhook {url!r} is not an http or https address", url=url),
                hint=message("watch.webhook_https_host", "--webhook https://HOST/PATH"),
            )
        self._url, self._host, self._verdicts, self._say = url, parts.hostname, verdicts, say
        self.failures = 0

    def ended(self, probe: Probe) -> None:
        if probe.verdict not in self._verdicts and not probe.new_changes:
            return
        request = urllib.request.Request(
            self._url,
            data=json.dumps(body_of(probe)).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "parity"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # http and https only: see above
                answer.read(1024)
        except (urllib.error.URLError, OSError, ValueError) as error:
            self.failures += 1
            self._say(
                message(
                    "watch.warning_webhook_not",
                    "warning: the webhook at {host} was not reached: {said}",
                    host=self._host,
                    said=str(error),
                )
            )


def body_of(probe: Probe) -> dict[str, Json]:
    """The body for a probe."""
    if probe.outcome is None:
        return {"text": f"parity: probe failed: {probe.failure}", "verdict": str(probe.verdict), "run": None,
                "reasons": [probe.failure], "changes": [], "findings": []}  # fmt: skip
    corrupt = [finding for comparison in probe.outcome.comparisons.values() for finding in comparison.corrupt]
    said = [*(change.sentence for change in probe.new_changes), *probe.outcome.reasons]
    return {
        "text": f"parity: {probe.verdict}: {said[0] if said else ''}",
        "verdict": str(probe.verdict),
        "run": probe.outcome.run_id,
        "reasons": [str(reason) for reason in probe.outcome.reasons],
        "changes": [change.to_json() for change in probe.changes],
        "findings": [
            {
                "arm": finding.arm,
                "request": finding.request,
                "round": finding.round,
                "sample": finding.sample,
                "kind": str(finding.kind),
                "position": finding.position,
                "length": finding.length,
            }
            for finding in corrupt[:SHOWN]
        ],
    }
