"""Tells another machine of a verdict that somebody should see."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from parity.errors import ParityError
from parity.messages import Message, Say, message
from parity.records import Json, Verdict
from parity.secrecy import without_secrets
from parity.watch.evidence import Change
from parity.watch.loop import Probe

TIMEOUT_SECONDS = 10.0
"""For one message, from looking up the address to the end of the answer."""
ENDING_SECONDS = 1.0
"""For a message whose connection was ended to be over."""
MOST_UNENDED = 4
"""Messages that could not be ended: where looking up a name takes minutes. With more nothing is sent."""
MOST_SAID = 300
SHORTEST_SECRET = 6
"""Letters of a part of the address that is blanked where a receiver says it back."""
SHOWN = 20
"""Findings in a message: enough to act on, small enough for any receiver."""


class Webhook:
    """POSTs JSON to `url` when a probe has a verdict in `verdicts`, when what it says changes, when a number has
    changed, and when all is well again: one message each, however many probes say the same.

    The body has `text` (one line, what Slack and Mattermost show), `verdict`, `run`, `servers`, `reasons`, `changes`
    and up to twenty corrupt findings. A receiver that fails is reported; the next probe that says the same tries again,
    and numbers that have changed are sent with the next message that arrives. A message that takes too long is ended,
    so that it is in nobody's way.
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
        self._owed: dict[tuple[str, str], Change] = {}
        """Numbers that have changed and that the receiver has not heard of, by arm and measure."""
        self._unended: list[threading.Thread] = []

    def ended(self, probe: Probe) -> None:
        bad = probe.verdict in self._verdicts
        self._bad += bad
        gist = gist_of(probe) if bad else None
        self._owed.update(((one.arm, one.measure), one) for one in probe.new_changes)
        if gist != self._told or self._owed:
            said = replace(probe, new_changes=tuple(self._owed.values()))
            body = body_of(said, self._servers, recovered=0 if bad or self._told is None else self._bad)
            if self._sent(body):
                self._told = gist
                self._owed.clear()
        if not bad and self._told is None:
            self._bad = 0

    def _sent(self, body: dict[str, Json]) -> bool:
        """Whether the receiver has it."""
        self._unended = [one for one in self._unended if one.is_alive()]
        if len(self._unended) >= MOST_UNENDED:
            self._failed(message("watch.webhook_busy", "it still has the messages before"))
            return False
        request = urllib.request.Request(
            self._url,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "parity"},
            method="POST",
        )
        post = _Post(request)
        thread = threading.Thread(target=post.send, daemon=True)
        thread.start()
        thread.join(TIMEOUT_SECONDS)  # a byte now and then never runs into the socket's own timeout
        if thread.is_alive():
            post.end()
            thread.join(ENDING_SECONDS)
            self._unended += [thread] if thread.is_alive() else []
            self._failed(message("watch.webhook_late", "no answer within {seconds:g} s", seconds=TIMEOUT_SECONDS))
        elif post.problem is not None:
            self._failed(post.problem)
        else:
            return True
        return False

    def _failed(self, said: Message | str) -> None:
        self.failures += 1
        if isinstance(said, str):  # of the receiver, which may say back what it was asked
            said = str(without_secrets(self._hidden.sub("***", said), longest=MOST_SAID))
        self._say(
            message(
                "watch.warning_webhook_not",
                "warning: the webhook at {host} did not take the message: {said}",
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


def _answered(status: int, reason: str) -> Message | str:
    """What a receiver answered that did not take a message; one that leads elsewhere is not followed."""
    if 300 <= status < 400:
        return message(
            "watch.webhook_redirects",
            "it answered HTTP {status} and leads elsewhere, which is not followed: give --webhook the address that it "
            "leads to",
            status=status,
        )
    return f"HTTP {status} {reason}".rstrip()


class _Post:
    """One message on its way: sent in a thread, and ended from another."""

    def __init__(self, request: urllib.request.Request) -> None:
        self._request = request
        self._sockets: list[socket.socket] = []
        self._over = False
        self.problem: Message | str | None = None
        """What went wrong, once it is over."""

    def send(self) -> None:
        opener = urllib.request.build_opener(_NoRedirect, _Http(self), _Https(self))
        try:
            with opener.open(self._request, timeout=TIMEOUT_SECONDS) as answer:  # http and https only: see above
                answer.read(1024)
        except urllib.error.HTTPError as error:
            self.problem = _answered(error.code, str(error.reason))
        except urllib.error.URLError as error:
            self.problem = str(error.reason)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.problem = str(error) or type(error).__name__

    def end(self) -> None:
        """Whatever it waits for comes to an end."""
        self._over = True
        for one in self._sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(one, socket.SHUT_RDWR)

    def connected(self, one: socket.socket) -> socket.socket:
        """The socket, which is the message's now."""
        self._sockets.append(one)
        if self._over:
            one.close()
            raise TimeoutError
        return one


class _Http(urllib.request.HTTPHandler):
    def __init__(self, post: _Post) -> None:
        super().__init__()
        self._post = post

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(*args: Any, **settings: Any) -> http.client.HTTPConnection:
            return _seen(http.client.HTTPConnection(*args, **settings), self._post)

        return self.do_open(connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, post: _Post) -> None:
        super().__init__()
        self._post = post

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(*args: Any, **settings: Any) -> http.client.HTTPConnection:
            return _seen(http.client.HTTPSConnection(*args, **settings), self._post)

        return self.do_open(connection, req)


def _seen(connection: http.client.HTTPConnection, post: _Post) -> http.client.HTTPConnection:
    """The connection, whose sockets are known to the message: that of TCP, and that of TLS in its place (the handshake
    between the two has the timeout as a whole)."""
    plain, connect = socket.create_connection, connection.connect

    def connect_seen() -> None:
        connect()
        post.connected(connection.sock)

    connection._create_connection = lambda *args, **settings: post.connected(plain(*args, **settings))  # type: ignore[attr-defined]
    connection.connect = connect_seen  # type: ignore[method-assign]
    return connection


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
