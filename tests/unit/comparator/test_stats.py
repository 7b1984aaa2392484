"""The numbers and sentences of a comparison as JSON."""

from __future__ import annotations

import json

import msgspec
import pytest
from captures import TEXT, capture, completion, score, scores, texts

from parity.comparator import Comparison, compare
from parity.comparator.stats import Stats
from parity.messages import Message


def greedy() -> Comparison:
    tokens = [*TEXT[:10], 500, *TEXT[11:20]]
    arms = capture("cpu/base", completion(TEXT[:20])), capture("cpu/mtp", completion(tokens))
    return compare(*arms, scores("cpu/mtp", p0=score(tokens, {10: 3.0})))


def drawn() -> Comparison:
    streams = [completion(TEXT[n : n + 20], f"p{n}") for n in range(8)]
    return compare(
        capture("cpu/base", *streams, temperature=1.0), capture("cpu/mtp", *reversed(streams), temperature=1.0)
    )


@pytest.mark.parametrize("compared", [greedy(), drawn()], ids=["greedy", "drawn"])
def test_stats_come_back_as_they_were(compared: Comparison) -> None:
    stats = compared.stats
    said = stats.to_json()
    assert json.loads(json.dumps(said)) == said
    assert Stats.from_json(said) == stats


def test_what_does_not_apply_is_left_out() -> None:
    assert {"loops", "noise_floor", "drift"} <= greedy().stats.to_json().keys()
    assert "sampling" not in greedy().stats.to_json()
    assert drawn().stats.to_json().keys().isdisjoint({"loops", "noise_floor", "drift"})


def test_stats_of_an_earlier_parity_are_read() -> None:
    said = drawn().stats.to_json()
    tests = {name: value for name, value in said["sampling"].items() if name not in ("mean_surprisal", "failed")}
    earlier = {**said, "sampling": {**tests, "mean_surprise": [0.5, None]}}
    sampling = Stats.from_json(earlier).sampling
    assert sampling
    assert sampling.mean_surprisal == (0.5, None)
    with pytest.raises(msgspec.ValidationError):
        Stats.from_json({"completions": "many"})


def test_sentences_are_text_and_data() -> None:
    found = greedy()
    said = found.to_json()
    assert said["schema"] == "parity.comparison/1"
    assert said["reasons"] == texts(found.reasons)
    (reason,) = said["messages"]["reasons"]
    assert reason["id"] == "conclude.corrupt"
    assert reason["parameters"] == {"corrupt": 1, "completions": 1, "kinds": ["unjustified"]}
    assert str(Message.from_json(reason)) == reason["text"] == said["reasons"][0]
    assert str(Message.from_json("a plain sentence, as parity wrote it once")) == (
        "a plain sentence, as parity wrote it once"
    )
