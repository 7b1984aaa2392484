"""Tells another machine of a verdict that somebody should see."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from parity.errors import ParityError
from parity.messages import Message, Say, message
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
        self._busy: threading.Thread | None = None
        self._open = urllib.request.build_opener(_NoRedirect).open

    def ended(self, probe: Probe) -> None:
        if probe.verdict not in self._verdicts and not probe.new_changes:
            return
        if self._busy is not None and self._busy.is_alive():
            self._failed(message("watch.webhook_busy", "it still has the message before"))
            return
        request = urllib.request.Request(
            self._url,
            data=json.dumps(body_of(probe)).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "parity"},
            method="POST",
        )
        said: list[str] = []
        self._busy = threading.Thread(target=self._post, args=(request, said), daemon=True)
        self._busy.start()
        self._busy.join(TIMEOUT_SECONDS)  # a byte now and then never runs into the socket's own timeout
        if self._busy.is_alive():
            self._failed(message("watch.webhook_late", "no answer within {seconds:g} s", seconds=TIMEOUT_SECONDS))
        elif said:
            self._failed(said[0])

    def _post(self, request: urllib.request.Request, said: list[str]) -> None:
        """Send it; what goes wrong is put into `said`."""
        try:
            with self._open(request, timeout=TIMEOUT_SECONDS) as answer:  # http and https only: see above
                answer.read(1024)
        except (OSError, ValueError, http.client.HTTPException) as error:
            said.append(str(error) or type(error).__name__)

    def _failed(self, said: Message | str) -> None:
        self.failures += 1
        self._say(
            message(
                "watch.warning_webhook_not",
                "warning: the webhook at {host} was not reached: {said}",
                host=self._host,
                said=said,
            )
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is sent is for this address and no other: an answer that names another is a failure."""

    def redirect_request(self, *_: Any) -> None:
        return None


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
