"""Parts of the workers that need no server and no engine: putting answers together, ending completions."""

from __future__ import annotations

from typing import Any

import pytest
from parity_backends.server.worker.about import parse_metrics
from parity_backends.server.worker.answers import Answer, assembled, whole
from parity_backends.server.worker.asking import CHAT, COMPLETIONS, OPENAI, VLLM, call_body, not_sent, sampling_body
from parity_backends.server.worker.receiving import ServerError
from parity_backends.transformers.worker.reference import Writer
from parity_backends.worker.counters import since
from parity_backends.worker.sentences import WorkerError
from subjects import GREEDY

from parity.records.sampling import wire


def chunk(index: int = 0, text: str = "", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "text": text, **more}]}


def problems(answer: Answer) -> list[str]:
    return [one["text"] for one in answer.samples[0].problems]


def test_chunks_of_several_samples_are_put_together_in_any_order() -> None:
    events = [
        chunk(1, "c", token_ids=[3]),
        chunk(0, "a", token_ids=[1]),
        chunk(0, "b", token_ids=[2], finish_reason="stop", stop_reason=2),
        chunk(1, "d", token_ids=[4], finish_reason="length"),
        {"choices": [], "usage": {"completion_tokens": 4}, "id": "x"},
    ]
    answer = assembled(events)
    first, second = answer.samples[0], answer.samples[1]
    assert (first.text, first.token_ids, first.finish_reason, first.stop_reason) == ("ab", [1, 2], "stop", 2)
    assert (second.text, second.token_ids, second.finish_reason) == ("cd", [3, 4], "length")
    assert not first.problems
    assert not second.problems
    assert answer.said["id"] == "x"


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([chunk(text="a", token_ids=[1])], "no finish_reason"),
        ([chunk(text="a", finish_reason="stop"), chunk(text="b")], "after the finish_reason"),
        ([chunk(text="a", finish_reason="stop"), chunk(finish_reason="length")], "a second finish_reason"),
    ],
)
def test_what_does_not_add_up_is_written_down(events: list[Any], words: str) -> None:
    assert any(words in problem for problem in problems(assembled(events)))


@pytest.mark.parametrize(
    "message",
    [[], {}, {"choices": [3]}, {"choices": [{"index": -1}]}, {"choices": [{"text": 5}]},
     {"choices": [{"token_ids": ["a"]}]}, {"choices": [{"index": 0}, {"index": 0}]},
     {"choices": [{"finish_reason": 3}]},
     {"choices": [{"logprobs": {"tokens": ["token_id:1"], "token_logprobs": []}}]}],
)  # fmt: skip
def test_what_is_no_answer_is_refused(message: Any) -> None:
    with pytest.raises(ServerError):
        whole(message, 1)


def test_thoughts_that_a_parser_split_off_come_first() -> None:
    answer = whole(
        {"choices": [{"message": {"reasoning_content": "hm ", "content": "yes"}, "finish_reason": "stop"}]}, 1
    )
    assert answer.samples[0].text == "hm yes"


EMPTY: dict[str, Any] = {"content": [], "refusal": None}
NAMED: dict[str, Any] = {"content": [{"token": "yes", "logprob": -0.1, "top_logprobs": []}]}


@pytest.mark.parametrize("before", [[EMPTY], []])
@pytest.mark.parametrize("with_names", [True, False])
def test_empty_lists_are_no_token_ids(before: list[Any], with_names: bool) -> None:
    """OpenAI's first chunk has an empty list; others have nothing else."""
    lists = [*before, NAMED if with_names else EMPTY]
    events: list[Any] = [{"choices": [{"delta": {"content": ""}, "logprobs": one}]} for one in lists]
    events.append({"choices": [{"delta": {"content": "yes"}, "logprobs": EMPTY, "finish_reason": "stop"}]})
    sample = assembled(events).samples[0]
    assert (sample.text, sample.token_ids, sample.logprobs, sample.listed) == ("yes", None, None, None)
    assert bool(sample.named) is with_names


def test_sampling_parameters_by_dialect() -> None:
    random = {**GREEDY, "temperature": 0.5, "seed": 4, "n": 3, "top_k": 5, "logprobs": 2, "stop": ["x"]}
    sent = sampling_body(random, wire(), VLLM, COMPLETIONS, 10)
    assert (sent["seed"], sent["top_k"], sent["logprobs"], sent["stop"]) == (10, 5, 2, ["x"])
    assert sent["return_token_ids"] is True
    plain = sampling_body(random, wire(), OPENAI, CHAT, None)
    assert (plain["logprobs"], plain["top_logprobs"]) == (True, 2)
    assert "top_k" not in plain
    assert not_sent(random, wire(), OPENAI) == {"top_k": 5}
    assert not_sent(random, wire(), VLLM) == {}
    assert "seed" not in plain
    assert "seed" not in sampling_body(GREEDY, wire(), VLLM, COMPLETIONS, 4)


def test_a_prompt_becomes_a_message_only_where_all_arms_do_that() -> None:
    request = {"id": "a", "prompt": "Hello", "prompt_token_ids": [1, 2]}
    body = call_body(request, "m", CHAT, {}, stream=False, wrap=True, as_text=False)
    assert body["messages"] == [{"role": "user", "content": "Hello"}]
    with pytest.raises(WorkerError, match="no messages"):
        call_body(request, "m", CHAT, {}, stream=False, wrap=False, as_text=False)
    assert call_body(request, "m", COMPLETIONS, {}, stream=False, wrap=False, as_text=False)["prompt"] == [1, 2]
    assert call_body(request, "m", COMPLETIONS, {}, stream=False, wrap=False, as_text=True)["prompt"] == "Hello"


def test_counters_are_summed_over_engines_and_positions_kept() -> None:
    text = """
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 3.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 5.0
vllm:num_requests_running{engine="0"} 1.0
garbage
"""
    assert parse_metrics(text) == {"drafts": 7, "accepted_per_pos": [5, 2]}


def writer(**sampling: Any) -> Writer:
    def decode(ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(96 + token) for token in ids if token)

    return Writer([1], {**GREEDY, "max_tokens": 4, **sampling}, [0], decode)


def said(one: Writer, *tokens: int) -> tuple[str | None, Any, str | None]:
    for token in tokens:
        if one.take(token, None):
            break
    return one.finish_reason, one.stop_reason, one.text


def test_how_a_completion_of_transformers_ends() -> None:
    assert said(writer(), 1, 2, 3, 4, 5) == ("length", None, "abcd")
    assert said(writer(), 1, 0, 3) == ("stop", None, "a")
    assert said(writer(ignore_eos=True), 1, 0, 3, 4) == ("length", None, "acd")
    assert said(writer(stop_token_ids=[2]), 1, 2, 3) == ("stop", 2, "a")
    assert said(writer(stop=["bc"]), 1, 2, 3, 4) == ("stop", "bc", "a")
    assert said(writer(stop=["bc"], min_tokens=3), 1, 2, 3, 4) == ("length", None, "abcd")  # said too early to count
    assert said(writer(stop=["cd"], min_tokens=3), 1, 2, 3, 4) == ("stop", "cd", "ab")
    assert said(writer(stop=["bc"], include_stop_str_in_output=True), 1, 2, 3, 4) == ("stop", "bc", "abc")
    assert said(writer(stop_token_ids=[2], include_stop_str_in_output=True), 1, 2, 3) == ("stop", 2, "ab")
    assert said(writer(stop=["abc", "bc", "c"]), 1, 2, 3, 4) == ("stop", "abc", "")
    assert said(writer(), 1, 2) == (None, None, None)


@pytest.mark.parametrize(
    "line",
    [
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="2000000000"} 1',
        "vllm:spec_decode_num_drafts_total 1e999",
        "vllm:spec_decode_num_drafts_total e.+-",
        "vllm:spec_decode_num_drafts_total -4",
        "vllm:spec_decode_num_drafts_total 1e300",
        'vllm:spec_decode_num_drafts_total{position="1"} 5',
    ],
)
def test_one_line_of_metrics_ends_no_run(line: str) -> None:
    good = "vllm:prompt_tokens_total 3"
    found = parse_metrics(f"{line}\n{good}\n{line}\nvllm:spec_decode_num_drafts_total 2\n")
    assert found["prompt_tokens"] == 3
    assert since(found, {"drafts": [1]}).keys() == found.keys()
