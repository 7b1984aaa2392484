"""A receiver of webhooks that does as it likes: `parity watch` goes on, sends nothing elsewhere, and keeps the address.

The key stands in the address, as the secrets of Slack's do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from asked import Asked
from judging import KEY, Ended, place

MIB = 700
SECONDS = 120.0
OK = b"HTTP/1.1 200 OK\r\n"
MOVES = b"\x1b[2J\x1b]0;owned\x07\x9b31m"

Deed = Callable[[socket.socket], None]
"""What is done with a connection whose request has been read."""


def sends(*pieces: bytes, wait: float = 0.0, times: int = 1) -> Deed:
    stop = threading.Event()

    def deed(connection: socket.socket) -> None:
        for _ in range(times):
            for piece in pieces:
                connection.sendall(piece)
                stop.wait(wait)

    return deed


def holds(connection: socket.socket) -> None:
    """Reads what comes, and says nothing."""
    while connection.recv(1 << 16):
        pass


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


def redirect(status: int, to: str) -> Deed:
    return sends(b"HTTP/1.1 %d x\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, to.encode()))


def said(status: bytes, body: bytes = b"") -> Deed:
    return sends(b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


MANY = 1 << 30
DEEDS: dict[str, Deed] = {
    "honest": said(b"200 OK", b"ok"), "closes": sends(), "resets": resets, "holds": holds, "garbage": sends(b"\x00\xff\xfe" * 5000), "not HTTP": sends(b"SSH-2.0-x\r\n"), "bytes that move": sends(MOVES * 100),
    "a reason that moves": said(b"500 " + MOVES), "a reason of 60 KB": said(b"500 " + b"x" * 60_000), "a reason that says the address": said(b"403 no " + KEY.encode()), "500 headers": sends(OK + b"X-A: y\r\n" * 500 + b"\r\n"), "headers without end": sends(OK, b"X-A: y\r\n" * 1000, times=MANY),
    "a header of 1 MB": sends(OK + b"X: " + b"y" * (1 << 20)), "100 without end": sends(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, times=MANY), "a body without end": sends(OK + b"\r\n", b"x" * 65536, times=MANY), "a byte a second": sends(b"H", wait=1.0, times=MANY),
    "headers by the second": sends(OK, b"X-A: y\r\n", wait=0.5, times=MANY), "a body by the second": sends(OK + b"Content-Length: 9999\r\n\r\n", b"x", wait=0.5, times=MANY), "length of 2^62": sends(OK + b"Content-Length: 4611686018427387904\r\n\r\nx"), "length negative": sends(OK + b"Content-Length: -5\r\n\r\n"), "chunks of text": sends(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "chunks of 2^62": sends(OK + b"Transfer-Encoding: chunked\r\n\r\n3fffffffffffffff\r\nx"), "status of 999": said(b"999 x"), "status of text": said(b"x y"), "status of 10^20": said(b"1" + b"0" * 20 + b" x"), "half a status": sends(b"HTTP/1.1 2"), "204": said(b"204 No Content"), "101": said(b"101 Switching Protocols"), "407": said(b"407 Proxy Authentication Required"),
    "a challenge": sends(b"HTTP/1.1 401 x\r\nWWW-Authenticate: Basic realm=\"" + MOVES + b"\"\r\nContent-Length: 0\r\n\r\n"), "a cookie": sends(OK + b"Set-Cookie: a=" + MOVES + b"\r\nContent-Length: 0\r\n\r\n"),
}  # fmt: skip
REDIRECTS = {status: f"redirect {status}" for status in (301, 302, 303, 307, 308)}
PLACES = {
    "to a file": "file:///etc/passwd",
    "to nothing": "",
    "to a port of text": "http://127.0.0.1:x/",
    "to FTP": "ftp://127.0.0.1/x",
    "to data": "data:text/plain,x",
    "to itself": "/again",
}
ADDRESSES = {
    "an address with a space": "http://127.0.0.1:{port}/" + KEY + "/a b", "an address that moves": "http://127.0.0.1:{port}/" + KEY + "\x1b[2J", "an address with a user": "http://u:" + KEY + "@127.0.0.1:{port}/x", "a port of text": "http://127.0.0.1:x/" + KEY, "a port of 2^40": "http://127.0.0.1:1099511627776/" + KEY,
    "a host that is none": "http://[::1/" + KEY, "a host of 5000 letters": "http://" + "x" * 5000 + "/" + KEY, "a file": "file:///etc/" + KEY, "a line end": "http://127.0.0.1:{port}/" + KEY + "\r\nX: y",
}  # fmt: skip
CASES = [*DEEDS, *REDIRECTS.values(), *(f"redirect 302 {name}" for name in PLACES), *ADDRESSES]
SHORT = ("redirect 307",)


class Receiver:
    """Of connections on a port; `heard`: what they sent first."""

    def __init__(self, deed: Deed) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.deed = self.socket.getsockname()[1], deed
        self.heard: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            self.heard.append(connection.recv(1 << 16))
            self.deed(connection)

    def close(self) -> None:
        self.socket.close()


def deed_of(case: str, elsewhere: int) -> Deed:
    if case in DEEDS:
        return DEEDS[case]
    for status, name in REDIRECTS.items():
        if case == name:
            return redirect(status, f"http://127.0.0.1:{elsewhere}/stolen")
    return redirect(302, PLACES[case.removeprefix("redirect 302 ")])


def campaign(asked: Asked) -> Iterator[Ended]:
    """Two probes of arms that diverge, each of which has something to say."""
    for case in SHORT if asked.short else asked.piece(CASES):
        elsewhere = Receiver(said(b"200 OK"))
        receiver = Receiver(said(b"200 OK") if case in ADDRESSES else deed_of(case, elsewhere.port))
        url = ADDRESSES.get(case, "http://127.0.0.1:{port}/services/" + KEY).format(port=receiver.port)
        with place() as here:
            ended = here.run(case, "watch", "--backends", "fake", "--suite", "smoke", "--max-tokens", "8", "--probes", "2",
                             "--interval", "0", "--webhook", url, seconds=SECONDS, mib=MIB, env={"FAKE": "corrupt"}, fine=(1, 2, 4))  # fmt: skip
        if elsewhere.heard:
            ended.problems.append("sent elsewhere")
        if case not in ADDRESSES and not receiver.heard:
            ended.problems.append("nothing sent")
        if ended.code == 1:
            ended.problems = [one for one in ended.problems if one != "exit 1 without DIVERGED"]
            if "DIVERGED" not in ended.err + ended.out:
                ended.problems.append("exit 1 without DIVERGED")
        receiver.close()
        elsewhere.close()
        yield ended
