"""What a worker says of its own is a sentence of ours: in the reader's language, and never formatted."""

from __future__ import annotations

import json

import pytest
from parity_backends.server.worker.transport import ServerError, of_request
from parity_backends.worker.protocol import WorkerError, message, refuse_churn

from parity.language import render
from parity.run.failures import engine_words
from parity.run.messages import Failed, decode


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
