"""Tells another machine of a verdict that somebody should see."""

from __future__ import annotations

import http.client
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from parity.errors import ParityError
from parity.messages import Message, Say, message
from parity.records import Json, Verdict
from parity.secrecy import without_secrets
from parity.watch.loop import Probe

TIMEOUT_SECONDS = 10.0
MOST_SAID = 300
SHORTEST_SECRET = 6
"""Letters of a part of the address that is blanked where a receiver says it back."""
SHOWN = 20
"""Findings in a message: enough to act on, small enough for any receiver."""


class Webhook:
    """POSTs JSON to `url` when a probe has a verdict in `verdicts`, when what it says changes, when a number has
    changed, and when all is well again: one message each, however many probes say the same.

    The body has `text` (one line, what Slack and Mattermost show), `verdict`, `run`, `servers`, `reasons`, `changes`
    and up to twenty corrupt findings. A receiver that fails is reported; the next probe that says the same tries again.
    """

    def __init__(
        self, url: str, verdicts: frozenset[Verdict], say: Say, servers: Mapping[str, str] | None = None
    ) -> None:
        """`servers`: addresses by arm. Raises ParityError for what is not an http or https address."""
        parts = _parts(url)
        if parts is None or not parts.hostname:
            raise ParityError(
                message("watch.webhook_not_address", "the webhook is not an http or https address"),
                hint=message("watch.webhook_https_host", "--webhook https://HOST/PATH"),
            )
        self._url, self._host, self._verdicts, self._say = url, parts.hostname, verdicts, say
        self._hidden = _secret_words(parts)
        self._servers = dict(servers or {})
        self.failures = 0
        self._told: tuple[str, ...] | None = None
        """What the receiver believes: the last bad probe that it heard of; None where all is well."""
        self._bad = 0
        """Probes since all was well."""
        self._busy: threading.Thread | None = None
        self._open = urllib.request.build_opener(_NoRedirect).open

    def ended(self, probe: Probe) -> None:
        bad = probe.verdict in self._verdicts
        self._bad += bad
        gist = gist_of(probe) if bad else None
        if gist != self._told or probe.new_changes:
            body = body_of(probe, self._servers, recovered=0 if bad or self._told is None else self._bad)
            if self._sent(body):
                self._told = gist
        if not bad and self._told is None:
            self._bad = 0

    def _sent(self, body: dict[str, Json]) -> bool:
        """Whether the receiver has it."""
        if self._busy is not None and self._busy.is_alive():
            self._failed(message("watch.webhook_busy", "it still has the message before"))
            return False
        request = urllib.request.Request(
            self._url,
            data=json.dumps(body).encode(),
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
        else:
            return True
        return False

    def _post(self, request: urllib.request.Request, said: list[str]) -> None:
        """Send it; what goes wrong is put into `said`."""
        try:
            with self._open(request, timeout=TIMEOUT_SECONDS) as answer:  # http and https only: see above
                answer.read(1024)
        except (OSError, ValueError, http.client.HTTPException) as error:
            said.append(str(error) or type(error).__name__)

    def _failed(self, said: Message | str) -> None:
        self.failures += 1
        if isinstance(said, str):  # of the receiver, which may say back what it was asked
            said = str(without_secrets(self._hidden.sub("***", said), longest=MOST_SAID))
        self._say(
            message(
                "watch.warning_webhook_not",
                "warning: the webhook at {host} was not reached: {said}",
                host=self._host,
                said=said,
            )
        )


def _parts(url: str) -> SplitResult | None:
    """None for what is no http or https address, or has characters that none has."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and (parts.port or 1) > 0
    except ValueError:
        return None
    return parts if fits and url.isprintable() and " " not in url else None


def _secret_words(parts: SplitResult) -> re.Pattern[str]:
    """What of an address is not to be seen, as it is and as it may be decoded: whoever knows it may post."""
    said = (parts.username, parts.password, *re.split(r"[/?&=;#,]", f"{parts.path}?{parts.query}#{parts.fragment}"))
    words = {one for word in said if word for one in (word, unquote(word)) if len(one) >= SHORTEST_SECRET}
    return re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or r"(?!)")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What is sent is for this address and no other: an answer that names another is a failure."""

    def redirect_request(self, *_: Any) -> None:
        return None


def gist_of(probe: Probe) -> tuple[str, ...]:
    """What two probes have in common that say the same: verdict, arms, kinds; not counts, runs and times."""
    if probe.outcome is None:
        return (str(probe.verdict), (probe.failure or "").split("\n")[0])
    found = {f"{arm} {finding.kind}" for arm, one in probe.outcome.comparisons.items() for finding in one.corrupt} | {
        f"{arm} {one.verdict}" for arm, one in probe.outcome.comparisons.items()
    }
    return (str(probe.verdict), *sorted(found))


def _concerned(probe: Probe, servers: Mapping[str, str]) -> dict[str, str]:
    """The servers whose answers it is about: those that did not pass, else all; where a probe failed, those that its
    failure names."""
    if probe.outcome is None:
        failure = probe.failure or ""
        return {arm: url for arm, url in servers.items() if arm in failure or url in failure} or dict(servers)
    bad = {arm for arm, one in probe.outcome.comparisons.items() if one.verdict is not Verdict.PASS}
    return {arm: url for arm, url in servers.items() if not bad or arm in bad} or dict(servers)


def body_of(probe: Probe, servers: Mapping[str, str] | None = None, *, recovered: int = 0) -> dict[str, Json]:
    """The body for a probe. `recovered`: so many probes were bad before it."""
    concerned = _concerned(probe, servers or {})
    where = " at " + ", ".join(f"{url} ({arm})" for arm, url in concerned.items()) if concerned else ""
    common: dict[str, Json] = {"verdict": str(probe.verdict), "servers": concerned, "recovered": bool(recovered)}
    if probe.outcome is None:
        first = (probe.failure or "").split("\n")[0]
        return {"text": f"parity: probe failed{where}: {first}", **common, "run": None,
                "reasons": [probe.failure], "changes": [], "findings": []}  # fmt: skip
    corrupt = [finding for comparison in probe.outcome.comparisons.values() for finding in comparison.corrupt]
    said = [str(one) for one in (*(change.sentence for change in probe.new_changes), *probe.outcome.reasons)]
    text = f"parity: {probe.verdict}{where}: {said[0] if said else ''}"
    if recovered:
        probes = "1 probe" if recovered == 1 else f"{recovered} probes"
        text = f"parity: recovered{where}: {probe.verdict} after {probes} that did not pass"
    return {
        "text": text,
        **common,
        "run": probe.outcome.run_id,
        "reasons": [str(reason) for reason in probe.outcome.reasons],
        "changes": [{**change.to_json(), "e_value": 10 ** min(change.log10_e, 300.0)} for change in probe.changes],
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
