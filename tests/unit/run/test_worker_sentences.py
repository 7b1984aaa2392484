"""What a worker says of its own is a sentence of ours: in the reader's language, and never formatted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from parity_backends.server.worker.receiving import ServerError
from parity_backends.worker.protocol import refuse_churn
from parity_backends.worker.sentences import WorkerError, message, of_request

from parity.language import render
from parity.messages import short_json, words_heard
from parity.report.formats.md import _flat
from parity.run import load_backend
from parity.run.backend import hint_for
from parity.run.failures import Doing, Trouble, engine_words, words_of
from parity.run.messages import Failed, Unscored, decode


def reported(error: WorkerError) -> Failed:
    """As the other side reads it."""
    event = {"event": "error", "where": "start", "type": type(error).__name__, "message": str(error)}
    found = decode(json.dumps({**event, "said": error.said}).encode())
    assert isinstance(found, Failed)
    return found


def test_it_is_shown_in_the_readers_language() -> None:
    refused = message("server.refused", "{url}: connection refused", url="http://h:1")
    tried = message("server.attempts", "{said}, after {attempts} attempts", said=refused, attempts=1)
    words = engine_words(reported(ServerError(of_request({"id": "p3"}, ServerError(tried)))))
    assert render(words, "en") == "request 'p3': http://h:1: connection refused, after 1 attempt"
    assert render(words, "zh") == "请求 'p3'：http://h:1：连接被拒绝，已尝试 1 次"


def test_one_without_parameters() -> None:
    with pytest.raises(WorkerError, match="all come at once") as refused:
        refuse_churn({"arrival": "every"})
    assert "同时到达" in render(engine_words(reported(refused.value)), "zh")


def test_words_of_others_stay_as_they_are() -> None:
    assert render(engine_words(reported(WorkerError("run out of {memory}"))), "zh") == "run out of {memory}"
    assert str(engine_words(Failed("RuntimeError", "CUDA error"))) == "RuntimeError: CUDA error"


@pytest.mark.parametrize(
    "said",
    [
        {"id": "server.refused", "parameters": {"url": "\x1b[31mred"}, "text": "{url.__class__} {0:>99999999}"},
        {"id": "server.refused", "parameters": {}, "text": "{url}"},
        {"id": "server.late", "parameters": {"timeout": 10**400}, "text": "late"},
        {"id": "vllm.ascend_cannot", "parameters": {"why": ["\x1b[31mred", {"text": "\x1b[0m{x}"}]}, "text": "no"},
        {"id": 7, "parameters": [1], "text": "plain"},
        {"text": 3},
        ["no object"],
    ],
)
def test_a_far_worker_is_not_believed(said: object) -> None:
    words = engine_words(Failed("WorkerError", "its message", said))
    for language in ("en", "zh"):
        shown = render(words, language)
        assert "\x1b" not in shown
        assert len(shown) < 200


def test_why_something_is_not_scored() -> None:
    key = {"arm": "a/b", "request": "p0", "round": 0, "sample": 0}
    reasons = [message("replay.no_score", "the recording has no score of this completion"), "context length exceeded"]
    lines = [json.dumps({"event": "unscored", "key": key, "reason": one}).encode() for one in reasons]
    ours, servers = (words_heard(found.reason) for found in map(decode, lines) if isinstance(found, Unscored))
    assert render(ours, "zh") == "该录制没有这条补全的打分"
    assert render(servers, "zh") == "context length exceeded"
    assert words_heard(short_json(ours)) == words_heard(short_json(words_heard(short_json(ours))))
    assert short_json(servers) == "context length exceeded"


@pytest.mark.parametrize(
    ("backend", "id", "words"),
    [
        ("server", "server.refused", "is the server up"),
        ("server", "server.no_access", "api_key_env"),
        ("server", "server.not_what", "the server's root"),
        ("server", "server.no_such_place", "the server's root"),
        ("server", "server.declined", "in a new run"),
        ("replay", "replay.other_prompt", "leave out --prompts"),
        ("replay", "replay.other_model", "--model DIR"),
        ("transformers", "transformers.does_not_load", "point PARITY_TRANSFORMERS_PYTHON at a newer one"),
        ("server", "server.late", None),
        ("cpu", "server.refused", None),
    ],
)
def test_what_to_do_goes_by_the_id(backend: str, id: str, words: str | None) -> None:
    """Whatever stands around the sentence, and whatever its words are in this version."""
    failed = reported(ServerError(of_request({"id": "p0"}, WorkerError({"id": id, "parameters": {}, "text": "-"}))))
    hint = hint_for(load_backend(backend), words_of(Trouble.ENGINE, "a/b", Doing.STARTING, engine_words(failed)))
    assert (words is None) == (hint is None)
    assert words is None or words in str(hint)


def test_words_in_a_log_are_no_sentence_of_ours() -> None:
    log = "request 'x': connection refused, HTTP 401, is a recording of the model, does not load"
    assert all(load_backend(name).explain(log) is None for name in ("server", "replay", "transformers"))


def test_workers_have_the_sentences_that_hints_go_by() -> None:
    for name in ("server", "replay", "transformers"):
        for id in load_backend(name).hints:  # type: ignore[attr-defined]
            assert sentence_ids() >= {id}


def sentence_ids() -> set[str]:
    """Ids of the sentences in worker programs."""
    root = Path(__file__).resolve().parents[3] / "backends" / "parity_backends"
    source = "".join(path.read_text() for path in root.rglob("worker/*.py"))
    return set(re.findall(r'message\(\s*"([a-z_.]+)"', source))


def test_in_a_report_it_is_one_line() -> None:
    settings = {"arguments": message("vllm.table_release", "release {version}", version="0.32.0"), "seed": 0}
    assert list(_flat(settings, "  ")) == ["  arguments: release 0.32.0", "  seed: 0"]
