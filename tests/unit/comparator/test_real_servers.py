"""What llama.cpp's server and `transformers serve` have answered: read by the worker, and compared.

tests/data/servers.json.gz holds their answers word for word but for names and times, and captures of 16 prompts: the
model is a small Qwen2 in bfloat16, which transformers itself has answered and scored as well.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from captures import capture, completion
from parity_backends.server.worker.answers import Answer, assembled, whole
from server_habits import detokenize, tokenizer

from parity.capture import read_capture, read_scores
from parity.comparator import CompareOptions, Comparison, compare
from parity.comparator.inputs.retokenised import on_the_same_tokens, supported
from parity.comparator.reference.arbiter import rulings
from parity.records import Capture, Key, ScoreKey, Scores, TopLogprobs, Verdict

DATA = Path(__file__).resolve().parents[2] / "data" / "servers.json.gz"


@cache
def data() -> Any:
    return json.loads(gzip.decompress(DATA.read_bytes()))


def llama(name: str) -> Answer:
    given = data()["llama.cpp"][name]
    return assembled(given) if isinstance(given, list) else whole(given, 1)


def serve(name: str) -> Answer:
    given = data()["transformers serve"][name]
    return assembled(given) if isinstance(given, list) else whole(given, 1)


def test_llama_gives_ids_with_logprobs_alone() -> None:
    assert llama("plain").samples[0].token_ids is None
    assert llama("eos").samples[0].token_ids == [16, 0]
    assert [len(one.token_ids or []) for one in llama("two").samples.values()] == [2, 2]


def test_llama_keeps_the_eos_and_counts_it() -> None:
    answer = llama("eos")
    assert answer.usage["completion_tokens"] == 2
    assert answer.samples[0].finish_reason == "stop"


def test_llama_counts_one_sample_of_two() -> None:
    assert llama("two").usage["completion_tokens"] == 2


def test_llama_has_one_entry_for_a_character_of_several_tokens() -> None:
    answer = llama("character")
    assert answer.usage["completion_tokens"] == len(answer.samples[0].token_ids or []) + 1
    assert (253, "“") in (answer.samples[0].listed or [])
    assert detokenize([253]) == "�"


@pytest.mark.parametrize("name", ["stream", "chat"])
def test_llama_lists_ids_in_chunks_and_in_chat(name: str) -> None:
    sample = llama(name).samples[0]
    assert sample.token_ids
    assert sample.logprobs is not None
    assert len(sample.logprobs) == len(sample.token_ids)


def test_transformers_gives_text_and_one_sample() -> None:
    """Asked for two samples and logprobs, which it lets pass."""
    answer = serve("plain")
    assert list(answer.samples) == [0]
    assert answer.samples[0].token_ids is None
    assert answer.samples[0].logprobs is None


def test_transformers_streams_a_finish_reason_and_a_usage() -> None:
    answer = serve("stream")
    assert answer.samples[0].finish_reason == "length"
    assert not answer.samples[0].problems
    assert answer.usage["completion_tokens"] == 3


# ------------------------------------------------------------------ compared


@pytest.fixture
def captures(tmp_path: Path) -> dict[str, Capture]:
    found = {}
    for name in ("transformers/base", "server/llama", "server/serve"):
        path = tmp_path / f"{name.replace('/', '-')}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in data()["captures"][name]))
        found[name] = read_capture(path)
    return found


@pytest.fixture
def scores(tmp_path: Path) -> Scores:
    path = tmp_path / "scores.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in data()["captures"]["scores"]))
    return read_scores(path)


def ask(baseline: Capture, candidate: Capture, scores: Scores | None = None) -> Comparison:
    return compare(baseline, candidate, scores, CompareOptions(detokenize=detokenize))


@pytest.mark.parametrize("name", ["server/llama", "server/serve"])
@pytest.mark.parametrize("is_scored", [True, False])
def test_real_servers_are_not_accused(name: str, is_scored: bool, captures: dict[str, Capture], scores: Scores) -> None:
    result = ask(captures["transformers/base"], captures[name], scores if is_scored else None)
    assert not result.corrupt
    assert result.verdict is Verdict.PASS


def test_two_servers_against_each_other(captures: dict[str, Capture]) -> None:
    result = ask(captures["server/llama"], captures["server/serve"])
    assert not result.corrupt


def test_text_alone_parts_at_the_tokens_at_which_the_texts_part(captures: dict[str, Capture]) -> None:
    result = ask(captures["transformers/base"], captures["server/serve"])
    ties = [one for one in result.findings if str(one.kind) == "near_tie"]
    assert ties
    assert all(one.to_json()["evidence"]["gap"] < 0.25 for one in ties)


@pytest.mark.parametrize("name", ["server/llama", "server/serve"])
def test_a_fault_in_a_real_servers_answer_is_found(name: str, captures: dict[str, Capture], scores: Scores) -> None:
    """Tokens of another request in the middle of one: seen where ids are given, and in text alone."""
    key, donor = Key("p8", 0, 0), Key("p11", 0, 0)
    arm = captures[name]
    one, other = arm.completions[key], arm.completions[donor]
    tokens = np.concatenate([one.token_ids[:8], other.token_ids[:12], one.token_ids[20:]])
    text = detokenize(tokens)
    broken = replace(one, token_ids=tokens, text=text, logprobs=None)
    damaged = replace(arm, completions={**arm.completions, key: broken})
    without = {score_key: top for score_key, top in scores.items() if score_key[:2] != (name, "p8")}
    result = ask(captures["transformers/base"], damaged, without)
    assert {found.key for found in result.corrupt} == {key}


def ids_of(*tokens: str) -> list[int]:
    found = [tokenizer().token_to_id(one) for one in tokens]
    assert None not in found
    return [int(one) for one in found]


def listed(*entries: tuple[str, float, str, float]) -> TopLogprobs:
    """At each place the chosen token and another one."""
    return TopLogprobs(
        np.array([ids_of(chosen, other) for chosen, _, other, _ in entries]),
        np.array([[value, best] for _, value, _, best in entries]),
    )


def test_the_token_after_one_that_another_cut_spells_as_well_is_not_rejected() -> None:
    """`transformers serve` said "d", "ig", "it", "s", "es"; made again from its text it is "d", "ig", "its", "es"."""
    tokens = ids_of("d", "ig", "its", "es", ",")
    score = listed(
        ("d", -3.02, "n", -3.17), ("ig", -1.23, "um", -2.23), ("its", -1.75, "it", -0.75), ("es", -8.58, "Ġof", -1.68),
        (",", -3.0, "Ġand", -1.0),
    )  # fmt: skip
    found = supported(np.array(tokens), "digitses,", score, detokenize).values
    assert found[2, 0] == -0.75
    assert found[3, 0] == -1.68
    assert found[4, 0] == -3.0  # what comes after that is judged again


def test_an_end_of_the_other_arm_is_not_kept_where_a_text_goes_on() -> None:
    """Drawn at random, one answer ends after a full stop, and the other does not."""
    base = capture("cpu/base", completion([*ids_of("."), 0], finish="stop", text="."), temperature=0.8)
    longer = ids_of(".", "Ġthe")
    other = capture("server/one", completion(longer, text=detokenize(longer)), temperature=0.8)
    served = {"served": {"token_source": "retokenised"}}
    other = replace(other, header=replace(other.header, backend="server", extra=served))
    made = on_the_same_tokens(base, other, {}, detokenize).candidate
    assert next(iter(made)).token_ids.tolist() == longer


def cut_otherwise() -> tuple[Capture, Capture, Scores]:
    """An engine that says "d", "ig", "it", "s", " of", and a server whose text "digitses," is cut into "d", "ig",
    "its", "es": scored after that, "es" lies 6.9 nats below the best."""
    said = ids_of("d", "ig", "it", "s", "Ġof")
    base = capture("cpu/base", completion(said, text=detokenize(said)), vocab_size=None)
    made = ids_of("d", "ig", "its", "es", ",")
    other = capture("server/one", completion(made, text=detokenize(made)), vocab_size=None)
    served = {"served": {"token_source": "retokenised"}}
    other = replace(other, header=replace(other.header, backend="server", extra=served))
    likely = (("d", -0.5, "n", -3.17), ("ig", -0.5, "um", -2.23))
    rest = (("its", -1.75, "it", -0.75), ("es", -8.58, "Ġof", -1.68), (",", -0.5, "Ġand", -1.0))
    scores = {
        ScoreKey("server/one", "p0", 0, 0): listed(*likely, *rest),
        ScoreKey("cpu/base", "p0", 0, 0): listed(*likely, *((one, -0.5, "Ġand", -1.0) for one in ("it", "s", "Ġof"))),
    }
    return base, other, scores


def test_a_token_scored_after_another_cut_of_what_both_say_is_not_rejected() -> None:
    result = ask(*cut_otherwise())
    assert (result.verdict, result.corrupt) == (Verdict.PASS, [])


def test_an_arbiter_rejects_no_token_that_only_another_cut_made() -> None:
    """It scored the ids that were made again from the text."""
    base, other, scores = cut_otherwise()
    found = rulings(base, other, scores, 0.25, detokenize)
    assert [one.supports for one in found.values()] == ["both"]
