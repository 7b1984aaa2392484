"""When the next probe is due, when the watch ends, and what a webhook is told."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from parity.comparator import Comparison
from parity.comparator.stats import Stats
from parity.errors import BackendError, ParityError
from parity.messages import verbatim
from parity.pipeline.outcome import Outcome
from parity.records import Evidence, Finding, Kind, Severity, Verdict
from parity.run import Interrupted
from parity.watch import Metrics, Probe, Watched, Webhook, watch
from parity.watch.evidence import Change

ALL = frozenset(Verdict)


def outcome(verdict: Verdict = Verdict.PASS, comparisons: dict[str, Comparison] | None = None) -> Outcome:
    return Outcome("run-1", Path("nowhere"), verdict, (verbatim("because"),), comparisons or {})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Probed:
    """Probes that take `seconds` each and come to these verdicts; None fails."""

    def __init__(self, clock: Clock, verdicts: list[Verdict | None], seconds: list[float] | None = None) -> None:
        self.clock, self.verdicts = clock, iter(verdicts)
        self.seconds = iter(seconds or [1.0] * len(verdicts))
        self.starts: list[float] = []

    def __call__(self, number: int) -> Outcome:
        self.starts.append(self.clock.now)
        self.clock.now += next(self.seconds)
        verdict = next(self.verdicts)
        if verdict is None:
            raise BackendError("the server is away\nmore")
        return outcome(verdict)


class Heard:
    def __init__(self) -> None:
        self.probes: list[Probe] = []

    def ended(self, probe: Probe) -> None:
        self.probes.append(probe)


def go(probed: Probed, **settings: Any) -> tuple[Any, Heard, list[str]]:
    heard, said = Heard(), []
    clock = probed.clock
    values: dict[str, Any] = {"interval": 10.0, "probes": 3, "until": frozenset(), **settings}
    return (
        watch(probed, (heard,), say=lambda line: said.append(str(line)), clock=clock, sleep=clock.sleep, **values),
        heard,
        said,
    )


def test_probes_start_an_interval_apart_and_late_ones_are_not_made_up_for() -> None:
    probed = Probed(Clock(), [Verdict.PASS] * 4, [1.0, 25.0, 1.0, 1.0])
    watched, heard, _ = go(probed, probes=4)
    assert probed.starts == [1000.0, 1010.0, 1035.0, 1045.0]
    assert [probe.seconds for probe in heard.probes] == [1.0, 25.0, 1.0, 1.0]
    assert watched.worst is Verdict.PASS


def test_a_failed_probe_is_told_and_the_watch_goes_on() -> None:
    watched, heard, said = go(Probed(Clock(), [Verdict.PASS, None, Verdict.PASS]))
    assert [probe.verdict for probe in heard.probes] == [Verdict.PASS, Verdict.ERROR, Verdict.PASS]
    assert "failed: the server is away" in said[1]
    assert watched.worst is Verdict.ERROR
    assert heard.probes[1].to_json()["failure"] == "the server is away\nmore"


def test_who_ends_a_watch_still_has_what_it_saw() -> None:
    probed, clock, watched = Probed(Clock(), [Verdict.PASS, Verdict.DIVERGED, Verdict.DIVERGED]), Clock(), Watched()

    def ctrl_c(seconds: float) -> None:
        if watched.probes == 3:
            raise KeyboardInterrupt
        clock.sleep(seconds)

    with pytest.raises(KeyboardInterrupt):
        watch(
            probed, (), interval=10.0, probes=None, until=frozenset(), watched=watched, say=print, clock=clock,
            sleep=ctrl_c,
        )  # fmt: skip
    assert (watched.probes, watched.verdicts) == (3, {Verdict.PASS: 1, Verdict.DIVERGED: 2})
    assert watched.corrupt == "run-1"


def test_what_diverged_weighs_more_than_what_failed() -> None:
    watched, _, _ = go(Probed(Clock(), [None, Verdict.DIVERGED, Verdict.INCONCLUSIVE]))
    assert watched.worst is Verdict.DIVERGED


def test_it_ends_at_the_verdict_that_it_waits_for() -> None:
    probed = Probed(Clock(), [Verdict.PASS, None, Verdict.DIVERGED, Verdict.PASS])
    watched, _, _ = go(probed, probes=None, until=frozenset({Verdict.DIVERGED}))
    assert watched.probes == 3
    assert watched.stopped_by.number == 3


def test_ctrl_c_is_no_failed_probe() -> None:
    def probe(number: int) -> Outcome:
        raise Interrupted("stop")

    with pytest.raises(Interrupted):
        watch(probe, (), interval=1, probes=2, until=frozenset(), say=lambda line: None)


# --------------------------------------------------------------------------- webhook


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", bodies
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_a_webhook_is_told_of_the_verdicts_it_wants() -> None:
    with receiver() as (url, bodies):
        hook = Webhook(url, frozenset({Verdict.DIVERGED, Verdict.ERROR}), lambda line: None)
        hook.ended(Probe(1, 0.0, 1.0, outcome()))
        hook.ended(Probe(2, 0.0, 1.0, outcome(Verdict.DIVERGED)))
        hook.ended(Probe(3, 0.0, 1.0, None, "away"))
    assert [body["verdict"] for body in bodies] == ["DIVERGED", "ERROR"]
    assert bodies[0]["text"] == "parity: DIVERGED: because"
    assert bodies[0]["run"] == "run-1"
    assert "away" in bodies[1]["text"]


BECAUSE = Evidence(why=verbatim("x"))


def found(kind: Kind, verdict: Verdict = Verdict.DIVERGED, run: str = "run-1") -> Outcome:
    one = Finding("server/live", "server/golden", "p0", 0, 0, kind, Severity.CORRUPT, None, None, BECAUSE)
    compared = Comparison("server/golden", "server/live", verdict, (), (one,), {}, Stats(completions=8))
    return Outcome(
        run, Path("nowhere"), verdict, (verbatim("1 of 8 completions are corrupt"),), {"server/live": compared}
    )


def test_one_message_when_it_begins_when_it_changes_and_when_it_is_over() -> None:
    servers = {"server/live": "http://gpu1:8000", "server/other": "http://gpu2:8000"}
    with receiver() as (url, bodies):
        hook = Webhook(url, ALL - {Verdict.PASS}, print, servers)
        probes = [
            outcome(),
            found(Kind.GARBLED, run="run-2"),
            found(Kind.GARBLED, run="run-3"),
            found(Kind.EARLY_STOP),
            None,
            None,
            outcome(),
            outcome(),
            found(Kind.GARBLED),
        ]
        for number, one in enumerate(probes):
            hook.ended(Probe(number, 0.0, 1.0, one, None if one else "server/other: connection refused\nmore"))
    assert [body["verdict"] for body in bodies] == ["DIVERGED", "DIVERGED", "ERROR", "PASS", "DIVERGED"]
    first, _, away, over, _ = bodies
    assert first["text"] == ("parity: DIVERGED at http://gpu1:8000 (server/live): 1 of 8 completions are corrupt")
    assert first["servers"] == {"server/live": "http://gpu1:8000"}
    assert away["text"] == ("parity: probe failed at http://gpu2:8000 (server/other): server/other: connection refused")
    assert over["text"].startswith("parity: recovered at ")
    assert over["text"].endswith(": PASS after 5 probes that did not pass")
    assert [body["recovered"] for body in bodies] == [False, False, False, True, False]


def test_what_the_receiver_did_not_get_is_sent_again() -> None:
    said: list[str] = []
    with receiver(500) as (url, bodies):
        hook = Webhook(url, ALL - {Verdict.PASS}, lambda line: said.append(str(line)))
        for number in range(3):
            hook.ended(Probe(number, 0.0, 1.0, found(Kind.GARBLED)))
    assert len(bodies) == len(said) == 3


@pytest.mark.parametrize("status", [500, 404])
def test_a_receiver_that_fails_is_said(status: int) -> None:
    said: list[str] = []
    with receiver(status) as (url, _):
        hook = Webhook(url, ALL, lambda line: said.append(str(line)))
        hook.ended(Probe(1, 0.0, 1.0, outcome()))
    hook.ended(Probe(2, 0.0, 1.0, outcome()))  # nobody there any more
    assert hook.failures == 2
    assert f": HTTP {status}" in said[0]
    assert "urlopen" not in said[1]
    assert all("webhook at 127.0.0.1 did not take the message: " in line for line in said)


@contextmanager
def answering(answer: bytes, drip: bytes = b"", later: bytes = b"") -> Iterator[str]:
    """A receiver that says `answer` to who connects first, then `drip` again and again for ever, whether they are there
    or not; `later` to all after that."""
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def first(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(answer)
            while drip and not over.wait(0.05):
                connection.sendall(drip)

    def serve() -> None:
        with suppress(OSError):
            threading.Thread(target=first, args=(server.accept()[0],), daemon=True).start()
            while later:
                with server.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(later)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/hook"
    over.set()
    server.close()


HEADERS = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(500)) + b"\r\n"


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", HEADERS, b"", b"HTTP/1.1 200 " + b"x" * 70000])
def test_garbage_from_a_receiver_ends_no_watch(answer: bytes) -> None:
    said: list[str] = []
    with answering(answer) as url:
        Webhook(url, ALL, lambda line: said.append(str(line))).ended(Probe(1, 0.0, 1.0, outcome()))
    assert len(said) == 1
    assert "did not take the message" in said[0]


FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"])
def test_one_message_that_drips_is_ended_and_the_next_arrives(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.watch.webhook.TIMEOUT_SECONDS", 0.3)
    said: list[str] = []
    with answering(answer, drip=b"X-Y: z\r\n" if answer else b"H", later=FINE) as url:
        before = threading.active_count()
        hook = Webhook(url, ALL, lambda line: said.append(str(line)))
        hook.ended(Probe(1, 0.0, 1.0, outcome()))
        assert threading.active_count() <= before + 1  # that of the receiver; none of the message
        hook.ended(Probe(2, 0.0, 1.0, outcome()))
        assert hook.failures == 1
    assert ["no answer within 0.3 s" in line for line in said] == [True]


def test_a_number_that_changed_is_sent_until_it_arrives() -> None:
    change = Change("server/live", "differing", "run-1", 0.0, 0.1, 9.0)
    hook = Webhook("http://127.0.0.1:1/hook", frozenset({Verdict.DIVERGED}), lambda line: None)
    hook.ended(Probe(1, 0.0, 1.0, outcome(), changes=(change,), new_changes=(change,)))
    assert hook.failures == 1
    with receiver() as (url, bodies):
        hook._url = url
        for number in (2, 3):
            hook.ended(Probe(number, 0.0, 1.0, outcome(), changes=(change,)))
    (body,) = bodies
    assert "share of completions that differ has changed since about run run-1" in body["text"]


def test_a_redirect_is_not_followed() -> None:
    said: list[str] = []
    with receiver() as (elsewhere, bodies):
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n".encode()
        with answering(moved) as url:
            Webhook(url, ALL, lambda line: said.append(str(line))).ended(Probe(1, 0.0, 1.0, outcome()))
    assert bodies == []
    assert "307" in said[0]
    assert "give --webhook the address that it leads to" in said[0]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "hook", "http://"])
def test_a_webhook_is_an_http_address(url: str) -> None:
    with pytest.raises(ParityError, match="not an http or https address"):
        Webhook(url, ALL, print)


def changing(number: int) -> Outcome:
    """A hundred probes of which nothing differs, then probes of which a part does."""
    stats = Stats(completions=64, identical=64 if number <= 100 else 60 - number % 3)
    compared = Comparison("replay/golden", "server/live", Verdict.PASS, (), (), {}, stats)
    return outcome(Verdict.PASS, {"server/live": compared})


def test_a_change_is_said_once_posted_once_and_leaves_the_watch_inconclusive() -> None:
    clock, heard, said = Clock(), Heard(), []
    with receiver() as (url, received):
        hook = Webhook(url, frozenset({Verdict.DIVERGED}), print)
        watched = watch(
            changing,
            (heard, hook),
            interval=1,
            probes=160,
            until=frozenset(),
            say=lambda line: said.append(str(line)),
            clock=clock,
            sleep=clock.sleep,
        )
    assert len([line for line in said if "share of completions that differ has changed" in line]) == 1
    (body,) = received
    assert body["verdict"] == "PASS"
    assert "has changed" in body["text"]
    assert [change["measure"] for change in body["changes"]] == ["differing"]
    assert [probe.number for probe in heard.probes if probe.new_changes] == [
        min(probe.number for probe in heard.probes if probe.changes)
    ]
    assert watched.worst is Verdict.INCONCLUSIVE


def test_a_watch_may_end_at_a_change() -> None:
    clock = Clock()
    settings: dict[str, Any] = {"interval": 1, "probes": 160, "until": frozenset(), "say": lambda line: None}
    watched = watch(changing, (), until_changed=True, clock=clock, sleep=clock.sleep, **settings)
    assert watched.stopped_by is not None
    assert 100 < watched.probes < 140


# --------------------------------------------------------------------------- metrics


def test_a_port_that_is_taken_is_said() -> None:
    with receiver() as (url, _):
        port = int(url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(ParityError, match="cannot serve metrics on"):
            Metrics().serve(port, "127.0.0.1")


@pytest.mark.parametrize("address", ["nowhere.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_no_matter_of_the_port(address: str) -> None:
    with pytest.raises(ParityError, match="cannot serve metrics on") as caught:
        Metrics().serve(0, address)
    assert "--metrics-address" in str(caught.value.hint)
    assert "--metrics-port" not in str(caught.value.hint)
