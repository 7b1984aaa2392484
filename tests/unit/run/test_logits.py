"""The logits of scored tokens: what the worker makes of an engine's two answers, and of one that gives no logits."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from parity_backends.vllm.worker.logits import RawLogits, logsumexps

LOGPROBS = [[[7, -0.5], [9, -1.0]], [[8, -0.1], [7, -2.4]], []]


def test_the_difference_of_logit_and_logprob_is_what_both_have_in_common() -> None:
    logits = [[[7, 11.5], [9, 11.01]], [[8, 9.9]], []]
    assert logsumexps(LOGPROBS, logits) == [12.01, 10.0, None]


def test_tokens_that_disagree_say_nothing() -> None:
    assert logsumexps(LOGPROBS, [[[7, 11.5], [9, 15.0]], [[8, 9.9]], []]) == [None, 10.0, None]


def test_an_engine_that_gives_logprobs_again_is_not_believed() -> None:
    assert logsumexps(LOGPROBS, LOGPROBS) is None
    assert logsumexps(LOGPROBS, []) is None


def test_what_the_engine_computes_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sampler:
        @staticmethod
        def compute_logprobs(logits: SimpleNamespace) -> str:
            return "logprobs"

    module = ModuleType("vllm.v1.sample.sampler")
    module.Sampler = Sampler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.sampler", module)
    for name in ("vllm", "vllm.v1", "vllm.v1.sample"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    logits = SimpleNamespace(float=lambda: "logits")
    with RawLogits():
        assert Sampler().compute_logprobs(logits) == "logits"
    assert Sampler().compute_logprobs(logits) == "logprobs"


def test_a_release_that_computes_them_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with RawLogits():
        pass
