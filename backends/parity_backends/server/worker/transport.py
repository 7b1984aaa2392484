"""HTTP to one server: every wait and every size is bounded, and a failure says what the server did."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from typing import Any, Iterator, Union
from urllib.parse import urlsplit

from parity_backends.worker.sentences import Sentence, message

from .bounds import LARGE_BYTES, excerpt, is_too_dense
from .keys import Key
from .receiving import Received, Refused, ServerError, failed

RETRIED = (429, 503)
"""Statuses that say "later": too many requests, not ready. Nothing else is asked twice."""

NO_ACCESS = (401, 403)
"""Statuses that ask for a key, or for another one."""
NO_SUCH_PLACE = (404, 405)
"""The URL has a path too many, or the server speaks something else."""

DECLINED = (400, 413, 422)
"""The server has read what was asked, and will not do it: a prompt too long, an option that it does not take."""

LONGEST_BACKOFF = 30.0


Body = dict[str, Any]
"""What is posted, as JSON has it."""


class Endpoint:
    """A server under one URL.

    `timeout`: seconds for one whole answer. `retries`: how often a refused connection or a status of RETRIED is
    tried again. Used from several threads at once, a connection for each call.
    """

    def __init__(self, url: str, key: str | None, timeout: float, retries: int, stop: threading.Event) -> None:
        parts = urlsplit(url)
        self.scheme, self.host = parts.scheme, parts.hostname or ""
        self.port = parts.port
        self.path = parts.path.rstrip("/")
        if self.path.endswith("/v1"):
            self.path = self.path[: -len("/v1")]
        self.shown = "%s://%s%s" % (parts.scheme, parts.netloc.rpartition("@")[2], self.path)
        self.key, self.timeout, self.retries, self.stop = Key(key), timeout, retries, stop
        self.retried = 0
        self.given_up = False
        """No call is begun any more: another has failed, or an end was asked for."""
        self._open: dict[int, tuple[Any, float]] = {}
        self._lock = threading.Lock()
        self._parsing = threading.Lock()

    # ------------------------------------------------------------------ what callers use

    def get(self, path: str) -> tuple[str, bytes]:
        """(content type, body) of a GET. Raises Refused, ServerError."""
        with self._call("GET", path, None) as answer:
            return answer.content_type, answer.read_all()

    def get_json(self, path: str) -> Any:
        kind, data = self.get(path)
        return self._json(path, kind, data)

    def post_json(self, path: str, body: Body) -> tuple[Any, int]:
        """(parsed answer, attempts) of a POST. Raises Refused, ServerError."""
        with self._call("POST", path, body) as answer:
            return self._json(path, answer.content_type, answer.read_all()), answer.attempts

    def post_stream(self, path: str, body: Body) -> Iterator[Any]:
        """The parsed events of a streamed answer, up to [DONE], or to the end of the answer where every choice has its
        finish_reason: not every server says [DONE]. Raises Refused, ServerError for a truncated one."""
        begun: set[Any] = set()
        ended: set[Any] = set()
        with self._call("POST", path, body) as answer:
            if not answer.content_type.startswith("text/event-stream"):
                raise ServerError(
                    self._not_what(path, message("server.a_stream", "a stream"), answer.content_type, answer.read_all())
                )
            yield {"attempts": answer.attempts}
            for data in answer.events():
                if data == "[DONE]":
                    return
                try:
                    event = json.loads(data)
                except ValueError:
                    raise ServerError(
                        message(
                            "server.chunk_no_json",
                            "{url}: a chunk that is not JSON: {said}",
                            url=self.shown + path,
                            said=self.key.hide(excerpt(data)),
                        )
                    ) from None
                if not isinstance(event, dict):
                    raise ServerError(
                        message("server.chunk_no_object", "{url}: a chunk that is not an object", url=self.shown + path)
                    )
                if event.get("error") is not None:
                    raise ServerError(
                        message(
                            "server.failed_later",
                            "{url}: failed in the middle: {said}",
                            url=self.shown + path,
                            said=self._said(data.encode()),
                        )
                    )
                for choice in event.get("choices") or []:
                    if isinstance(choice, dict):
                        (begun if choice.get("finish_reason") is None else ended).add(str(choice.get("index", 0)))
                yield event
            if ended and begun <= ended:
                return
            raise ServerError(
                message(
                    "server.stream_truncated",
                    "{url}: the stream ended before [DONE]: it is truncated",
                    url=self.shown + path,
                )
            )

    def expire(self) -> None:
        """Cut off answers that have taken longer than the timeout; called now and then while others wait."""
        now = time.monotonic()
        self._shut([sock for sock, until in self._snapshot() if now > until])

    def abort(self) -> None:
        """Cut off everything, and begin nothing any more: an end has been asked for."""
        self.given_up = True
        self._shut([sock for sock, _ in self._snapshot()])

    # ------------------------------------------------------------------ one call

    def _call(self, method: str, path: str, body: Body | None) -> Received:
        payload = None if body is None else json.dumps(body).encode()
        attempt = 0
        while True:
            attempt += 1
            pause = 0.0
            try:
                answer = self._once(method, path, payload)
            except ConnectionRefusedError:
                problem = message("server.refused", "{url}: connection refused", url=self.shown)
            else:
                if answer.status not in RETRIED:
                    return self._accepted(path, answer, attempt)
                pause = answer.retry_after
                with answer:
                    problem = self._status(path, answer.status, self._said(answer.read_all()))
            if attempt > self.retries:
                raise ServerError(
                    message("server.attempts", "{said}, after {attempts} attempts", said=problem, attempts=attempt)
                )
            with self._lock:
                self.retried += 1
            pause = min(LONGEST_BACKOFF, max(pause, 0.25 * 2**attempt))
            if self.stop.wait(pause):
                raise ServerError(message("server.given_up", "given up: an end was asked for"))

    def _accepted(self, path: str, answer: Received, attempt: int) -> Received:
        answer.attempts = attempt
        if answer.status == 200:
            return answer
        with answer:
            if 300 <= answer.status < 400:
                where = self.key.hide(answer.response.getheader("Location") or "")
                raise ServerError(
                    message(
                        "server.redirected",
                        "{url}: redirected to {where}: name that URL instead",
                        url=self.shown + path,
                        where=excerpt(where) if where else message("server.elsewhere", "elsewhere"),
                    )
                )
            said = self._said(answer.read_all())
            raise Refused(self._status(path, answer.status, said), answer.status, said)

    def _once(self, method: str, path: str, payload: bytes | None) -> Received:
        make: Any = http.client.HTTPConnection
        extra: dict[str, Any] = {}
        if self.scheme == "https":
            make, extra = http.client.HTTPSConnection, {"context": ssl.create_default_context()}
        connection = make(self.host, self.port, timeout=self.timeout, **extra)
        headers = {"Accept": "application/json, text/event-stream", "User-Agent": "parity"}
        if payload is not None:
            headers["Content-Type"] = "application/json"
        if self.key.text:
            headers["Authorization"] = "Bearer " + self.key.text
        answer = None
        if self.given_up:
            raise ServerError(message("server.given_up", "given up: an end was asked for"))
        try:
            connection.connect()
            answer = Received(connection, self.shown + path, self.timeout, self.key, self)
            self.track(answer.sock)
            connection.request(method, self.path + path, payload, headers)
            answer.begin()
        except (OSError, http.client.HTTPException) as error:
            if answer is not None:
                self.forget(answer.sock)
            connection.close()
            if isinstance(error, ConnectionRefusedError):
                raise
            late = answer is not None and time.monotonic() > answer.until  # then it was cut off, see expire()
            raise failed(self.shown + path, self._late() if late else self.why(error)) from error
        return answer

    # ------------------------------------------------------------------ what went wrong, in words

    def _status(self, path: str, status: int, said: str) -> Sentence:
        url = self.shown + path
        if status in NO_ACCESS:
            return message("server.no_access", "{url}: HTTP {status}: {said}", url=url, status=status, said=said)
        if status in NO_SUCH_PLACE:
            return message("server.no_such_place", "{url}: HTTP {status}: {said}", url=url, status=status, said=said)
        if status in DECLINED:
            return message("server.declined", "{url}: HTTP {status}: {said}", url=url, status=status, said=said)
        return message("server.status", "{url}: HTTP {status}: {said}", url=url, status=status, said=said)

    def _late(self) -> Sentence:
        return message("server.late", "no answer within {timeout:g} s", timeout=self.timeout)

    def why(self, error: Exception) -> Union[Sentence, str]:
        """What an error of the connection means."""
        if isinstance(error, (socket.timeout, TimeoutError)):
            return self._late()
        if isinstance(error, http.client.RemoteDisconnected):
            return message("server.closed", "the server closed the connection without an answer")
        if isinstance(error, http.client.IncompleteRead):
            return message("server.truncated", "the answer is truncated")
        if isinstance(error, http.client.HTTPException):
            return message("server.no_http", "what it answers is not HTTP ({kind})", kind=type(error).__name__)
        if isinstance(error, socket.gaierror):
            return message("server.unknown_host", "the host name {host!r} is not known", host=self.host)
        return str(error) or type(error).__name__

    def _json(self, path: str, kind: str, data: bytes) -> Any:
        if "json" not in kind:
            raise ServerError(self._not_what(path, "JSON", kind, data))
        if is_too_dense(data):
            raise ServerError(
                message(
                    "server.too_dense",
                    "{url}: an answer of nothing but lists, objects or numbers",
                    url=self.shown + path,
                )
            )
        try:
            if len(data) < LARGE_BYTES:
                return json.loads(data)
            with self._parsing:  # Python parses one at a time anyway; so not all are in memory at once
                return json.loads(data)
        except (ValueError, RecursionError):
            raise ServerError(
                message(
                    "server.bad_json",
                    "{url}: an answer that is not valid JSON: {said}",
                    url=self.shown + path,
                    said=self.key.hide(excerpt(data)),
                )
            ) from None

    def _not_what(self, path: str, wanted: Union[Sentence, str], kind: str, data: bytes) -> Sentence:
        return message(
            "server.not_what",
            "{url}: answered {kind} instead of {wanted}: {said}; is this an OpenAI-compatible server?",
            url=self.shown + path,
            kind=kind or message("server.no_content_type", "something without a content type"),
            wanted=wanted,
            said=self.key.hide(excerpt(data)),
        )

    def _said(self, data: bytes) -> str:
        """The message inside an error answer, whatever its shape."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        for name in ("error", "message", "detail"):
            if isinstance(value, dict) and value.get(name):
                value = value[name]
        return self.key.hide(excerpt(value if isinstance(value, str) else data))

    # ------------------------------------------------------------------ open connections

    def track(self, sock: Any) -> None:
        with self._lock:
            self._open[id(sock)] = (sock, time.monotonic() + self.timeout)

    def forget(self, sock: Any) -> None:
        with self._lock:
            self._open.pop(id(sock), None)

    def _snapshot(self) -> list[tuple[Any, float]]:
        with self._lock:
            return list(self._open.values())

    @staticmethod
    def _shut(socks: list[Any]) -> None:
        for sock in socks:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed in the meantime
