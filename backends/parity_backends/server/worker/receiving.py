"""One answer of a server, read piece by piece: bounded in time and in size."""

from __future__ import annotations

import http.client
import time
from typing import Any, Iterator, Protocol, Union

from parity_backends.worker.sentences import Sentence, WorkerError, message

from .bounds import MAX_ANSWER_BYTES, SHOWN
from .keys import Key


class ServerError(WorkerError):
    """The server could not be reached, or did not answer as an OpenAI-compatible server does."""


class Refused(ServerError):
    """An HTTP error status. `status` is it, `answered` the server's own message."""

    def __init__(self, said: Union[Sentence, str], status: int, answered: str) -> None:
        super().__init__(said)
        self.status = status
        self.answered = answered


def failed(where: str, why: Union[Sentence, str]) -> ServerError:
    return ServerError(message("server.failed", "{url}: {why}", url=where, why=why))


class Connections(Protocol):
    """Who holds the connections of a server."""

    def why(self, error: Exception) -> Union[Sentence, str]:
        """What an error of the connection means."""

    def forget(self, sock: Any) -> None:
        """A connection is closed."""


class Received:
    """An answer being read, as a context that closes the connection; `timeout`: seconds for all of it."""

    def __init__(self, connection: Any, where: str, timeout: float, key: Key, owner: Connections) -> None:
        self.connection, self.where, self.timeout, self.key, self.owner = connection, where, timeout, key, owner
        self.sock = connection.sock
        self.until = time.monotonic() + timeout
        self.attempts = 1
        self.size = 0

    def begin(self) -> None:
        self.response = self.connection.getresponse()
        self.status = int(self.response.status)
        self.content_type = self.key.hide(str(self.response.getheader("Content-Type") or "").lower())[:SHOWN]
        after = self.response.getheader("Retry-After") or ""
        self.retry_after = float(after[:9]) if after.isascii() and after.isdigit() else 0.0

    def __enter__(self) -> Received:
        return self

    def __exit__(self, *_: object) -> None:
        self.owner.forget(self.sock)
        self.connection.close()

    def read_all(self) -> bytes:
        return self.key.hide_in(b"".join(self.pieces()))

    def pieces(self) -> Iterator[bytes]:
        while True:
            try:
                data = self.response.read1(65536)
            except (OSError, http.client.HTTPException, ValueError) as error:
                late = time.monotonic() > self.until
                raise failed(self.where, self._too_slow() if late else self.owner.why(error)) from error
            if not data:
                break
            if time.monotonic() > self.until:  # a byte now and then never runs into the socket's own timeout
                raise failed(self.where, self._too_slow())
            self.size += len(data)
            if self.size > MAX_ANSWER_BYTES:
                raise ServerError(
                    message(
                        "server.too_long",
                        "{url}: an answer of more than {most} MiB",
                        url=self.where,
                        most=MAX_ANSWER_BYTES >> 20,
                    )
                )
            yield data
        if time.monotonic() > self.until:
            raise failed(self.where, self._too_slow())
        if self.response.length:
            raise ServerError(
                message(
                    "server.bytes_missing",
                    "{url}: the answer is truncated, {missing} bytes are missing",
                    url=self.where,
                    missing=self.response.length,
                )
            )

    def _too_slow(self) -> Sentence:
        return message("server.not_whole", "no whole answer within {timeout:g} s", timeout=self.timeout)

    def events(self) -> Iterator[str]:
        """The data of each server-sent event."""
        rest, lines = b"", []
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                line = line.rstrip(b"\r")
                if line.startswith(b"data:"):
                    lines.append(line[5:].strip())
                elif not line and lines:
                    yield self.key.hide_in(b"\n".join(lines)).decode("utf-8", "replace")
                    lines = []
        if lines and lines[-1] == b"[DONE]":
            yield "[DONE]"
