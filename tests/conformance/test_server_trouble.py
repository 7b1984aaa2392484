"""Servers that misbehave: a clear message, what was answered is kept, and it can go on."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import subjects
from fake_server import FakeServer, fake_server
from real_server import free_port

from parity.capture import check_capture, read_capture
from parity.errors import BackendError, ExitCode, ParityError
from parity.run import Interrupted, load_backend, run_arm

TROUBLE = {
    "http 500": "HTTP 500: out of memory",
    "html": "answered text/html instead of JSON: <html>Bad gateway</html>; is this an OpenAI-compatible server?",
    "garbage": 'an answer that is not valid JSON: {"choices": [',
    "no choices": "an answer without choices",
    "redirect": "redirected to http://elsewhere.example/: name that URL instead",
    "not http": "what it answers is not HTTP",
    "closes": "the server closed the connection without an answer",
    "busy": "HTTP 429: try later, after 2 attempts",
    "cut body": "the answer is truncated, 20 bytes are missing",
    "no ids": "an answer without token_ids; earlier ones had them",
    "hang": "no answer within 1.5 s",
    "drip": "no whole answer within 1.5 s",
}
STREAMED = {
    "stream of another type": "answered text/plain instead of a stream",
    "cut stream": "the stream ended before [DONE]: it is truncated",
    "fails in the middle": "failed in the middle: the engine died",
}


def up(server: FakeServer, **options: Any) -> subjects.Up:
    given = {"timeout": 1.5, "retries": 1, "concurrency": 1, **options}
    return subjects.Up("server", subjects.settings("server", url=server.url, **given), {})


def run(one: subjects.Up, capture: Path, **plan: Any) -> None:
    with run_arm(one.plan(**plan), one.arm, capture, capture.with_suffix(".log"), resume=True) as session:
        session.generate()


@pytest.mark.parametrize(("mode", "words"), [*TROUBLE.items(), *STREAMED.items()])
def test_trouble_is_named_what_was_answered_is_kept_and_it_goes_on(mode: str, words: str, tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    with fake_server(mode=mode, after=2) as server:  # the probe and one request go well
        one = up(server, stream=mode in STREAMED)
        with pytest.raises(BackendError) as caught:
            run(one, capture)
        assert caught.value.exit_code is ExitCode.BACKEND_FAILED
        first = str(caught.value).splitlines()[0]
        assert first.startswith("server/x: failed while generating: ")
        assert words in first
        assert "request 'p" in first
        assert "Traceback" not in str(caught.value)
        assert "\x1b" not in str(caught.value)
        assert len(read_capture(capture, partial=True).completions) == 1
        server.behaviour.mode = ""
        run(one, capture)
    whole = read_capture(capture)
    assert len(whole.completions) == len(subjects.PROMPTS)
    assert check_capture(capture) == []


def test_a_server_that_is_busy_is_asked_again_and_that_is_written_down(tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    with fake_server(busy=2) as server:
        run(up(server, retries=4), capture)  # the probe waits
        server.behaviour.busy = 1
        server.behaviour.requests.clear()
        late = tmp_path / "late.jsonl"
        with run_arm(up(server).plan(), "server/x", late, tmp_path / "late.log") as session:
            session.link.start()
            server.behaviour.busy = 1
            session.generate()
    whole = read_capture(late)
    attempts = sorted(one.server["attempts"] for one in whole if one.server is not None)
    assert attempts == [1, 1, 1, 2]
    assert whole.counters is not None
    assert whole.counters["retries"] == 1


def test_nobody_there(tmp_path: Path) -> None:
    settings = subjects.settings("server", url=f"http://127.0.0.1:{free_port()}", retries=1)
    with pytest.raises(BackendError, match="connection refused, after 2 attempts") as caught:
        run(subjects.Up("server", settings, {}), tmp_path / "capture.jsonl")
    assert caught.value.hint is not None
    assert "is the server up" in str(caught.value.hint)
    assert not (tmp_path / "capture.jsonl").exists()


def test_a_login_page_at_the_start(tmp_path: Path) -> None:
    with fake_server(mode="html models") as server, pytest.raises(BackendError, match="a login page") as caught:
        run(up(server), tmp_path / "capture.jsonl")
    assert caught.value.hint is not None
    assert "http://host:8000" in str(caught.value.hint)


def test_which_of_several_models_must_be_said(tmp_path: Path) -> None:
    with fake_server(models=("a", "b")) as server:
        with pytest.raises(BackendError, match="serves a, b: name one as `model`"):
            run(up(server), tmp_path / "1.jsonl")
        with pytest.raises(BackendError, match="does not serve 'c'; it has a, b"):
            run(up(server, model="c"), tmp_path / "2.jsonl")
        run(up(server, model="b"), tmp_path / "3.jsonl")
        assert {body["model"] for _, body in server.behaviour.requests} == {"b"}


def test_a_key_is_sent_and_never_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sesame-open")
    capture = tmp_path / "capture.jsonl"
    with fake_server(key="sesame-open") as server:
        run(up(server, api_key_env="SOME_KEY"), capture)
        assert "sesame-open" not in capture.read_text()
        monkeypatch.setenv("SOME_KEY", "sesame-shut")
        with pytest.raises(BackendError, match="HTTP 401: wrong key Bearer \\*\\*\\*") as caught:
            run(up(server, api_key_env="SOME_KEY"), tmp_path / "other.jsonl")
        monkeypatch.delenv("SOME_KEY")
        with pytest.raises(BackendError, match="SOME_KEY, which is to hold the API key, is not set"):
            run(up(server, api_key_env="SOME_KEY"), tmp_path / "third.jsonl")
    for text in (str(caught.value), *(path.read_text() for path in tmp_path.glob("*.log"))):
        assert "sesame" not in text


def test_what_was_sent_and_said_is_recorded(tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    with fake_server() as server:
        run(up(server), capture, temperature=0.5, seed=3, rounds=2)
        sent = [body for path, body in server.behaviour.requests if path == "/v1/completions"][1:]
        about = server.behaviour.requests
    assert len(about) == 1 + 2 * len(subjects.PROMPTS)
    seeds = sorted(body["seed"] for body in sent)  # one of its own for every request in every round
    assert len(set(seeds)) == 2 * len(subjects.PROMPTS)
    assert [b - a for a, b in zip(seeds[::2], seeds[1::2], strict=True)] == [1] * len(subjects.PROMPTS)
    header = read_capture(capture).header
    served = header.extra["served"]
    assert served["server"]["version"] == "0.32.0-fake"
    assert served["sent"]["temperature"] == 0.5
    assert served["sent"]["top_k"] == 0
    assert header.environment["versions"] == {"vllm": "0.32.0-fake"}
    for one in read_capture(capture):
        assert one.server is not None
        assert one.server["model"] == "tiny"
        assert one.server["usage"]["completion_tokens"] == len(one.token_ids)


def test_a_parameter_that_a_server_does_not_take_is_said(tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    with fake_server(vllm=False) as server:
        run(up(server), capture, temperature=0.5, top_k=7)
    served = read_capture(capture).header.extra["served"]
    assert served["not_sent"] == {"top_k": 7}
    assert any("top_k=7" in one["text"] for one in served["unchecked"])


def test_many_requests_are_under_way_at_once(tmp_path: Path) -> None:
    requests = [{**subjects.questions()[0], "id": f"r{number}"} for number in range(200)]
    with fake_server() as server:
        run(up(server, concurrency=32, timeout=30.0), tmp_path / "capture.jsonl", requests=requests)
    assert len(read_capture(tmp_path / "capture.jsonl").completions) == 200


def test_ctrl_c_does_not_wait_for_a_server_that_hangs(tmp_path: Path) -> None:
    capture, stop = tmp_path / "capture.jsonl", threading.Event()
    with fake_server(mode="hang", after=2) as server:
        one = up(server, timeout=60.0, concurrency=4)
        began = time.monotonic()
        timer = threading.Timer(1.0, stop.set)
        timer.start()
        with (
            pytest.raises(Interrupted),
            run_arm(one.plan(), one.arm, capture, tmp_path / "engine.log", stop=stop) as session,
        ):
            session.generate()
        assert time.monotonic() - began < 15
        timer.join()
    assert len(read_capture(capture, partial=True).completions) == 1


def test_the_url_may_end_in_v1(tmp_path: Path) -> None:
    with fake_server() as server:
        settings = subjects.settings("server", url=server.url + "/v1/")
        run(subjects.Up("server", settings, {}), tmp_path / "capture.jsonl")
        assert {path for path, _ in server.behaviour.requests} == {"/v1/completions"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs the URL"),
        ({"url": "ftp://host"}, "not an http or https URL"),
        ({"url": "http://user:pass@host"}, "holds a user name or a password"),
        ({"url": "http://host:99999999"}, "not a URL"),
        ({"url": "http://host", "endpoint": "embeddings"}, "endpoint is 'embeddings'"),
        ({"url": "http://host", "concurrency": 0}, "concurrency of the server is 0"),
        ({"url": "http://host", "stream": "yes"}, "stream of the server is 'yes'"),
        ({"url": "http://host", "temprature": 1}, "no setting 'temprature'"),
    ],
)
def test_settings_that_make_no_sense_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ParityError, match=words) as caught:
        subjects.settings("server", **given)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "pass@" not in str(caught.value)


def test_the_worker_is_one_file_of_the_standard_library() -> None:
    import ast
    import sys

    for name, also in (
        ("server", {"tokenizers"}),
        ("replay", set()),
        ("transformers", {"torch", "transformers", "numpy"}),
    ):
        tree = ast.parse(load_backend(name).worker_source(), feature_version=(3, 9))
        found = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module).partition(".")[0])
        assert found - set(sys.stdlib_module_names) <= {*also, "tokenizers", "vllm", "torch"}, name
