"""Prompts from files and suites, tokenised once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import parity
from parity.errors import ParityError
from parity.plan import Prompt, load_prompts, load_suite, suite_names
from parity.plan.requests import tokenise
from parity.plan.tokenise import ChatTemplate

MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"


def test_a_text_file_has_a_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes("\ufeffone\r\n\r\n  two  \n你好\u2028x\n".encode())
    prompts = load_prompts(file)
    assert [(p.id, p.text) for p in prompts] == [("p0", "one"), ("p1", "  two  "), ("p2", "你好\u2028x")]


def test_jsonl_takes_all_three_shapes(tmp_path: Path) -> None:
    rollout = {"prompt_token_ids": [5, 6, 7], "response": "x", "reward": 0.5, "prompt": "ignored for ids"}
    lines = [
        {"prompt": "one", "id": "first"},
        rollout,
        {"messages": [{"role": "user", "content": "hi"}], "id": 7},
        {"prompt": [{"role": "user", "content": "messages under another name"}]},
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    prompts = load_prompts(file)
    assert [p.id for p in prompts] == ["first", "p1", "7", "p3"]
    requests = tokenise(prompts, MODEL)
    assert requests[1].prompt_token_ids == (5, 6, 7)
    assert requests[2].prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert requests[2].prompt_token_ids[0] == 1  # the template's special token, not its letters
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    assert tokenizer.decode(list(requests[0].prompt_token_ids)) == "one"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", "", "no prompts"),
        ("p.txt", "\n \n", "no prompts"),
        ("p.jsonl", "", "no prompts"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": ', "line 2 is not JSON"),
        ("p.jsonl", '{"text": "a"}', "line 1 has none of prompt"),
        ("p.jsonl", "7", "line 1 is int"),
        ("p.jsonl", '{"prompt_token_ids": [1, "2"]}', "must be a list of token ids"),
        ("p.jsonl", '{"prompt_token_ids": [1, true]}', "must be a list of token ids"),
        ("p.jsonl", '{"messages": []}', "messages must be"),
        ("p.jsonl", '{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}', "'x' was used on line 1"),
        ("p.jsonl", '{"prompt": "a", "id": {}}', "id must be"),
        ("p.jsonl", "[" * 100_000, "not JSON"),
    ],
)
def test_bad_prompt_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(ParityError, match=message) as caught:
        load_prompts(file)
    assert caught.value.hint


def test_not_utf8_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_bytes(b"good\nbad \xff\n")
    with pytest.raises(ParityError, match="line 2 is not UTF-8"):
        load_prompts(file)
    with pytest.raises(ParityError, match="does not exist"):
        load_prompts(tmp_path / "nope")
    with pytest.raises(ParityError, match="cannot read"):
        load_prompts(tmp_path)


def test_the_suites() -> None:
    assert suite_names() == ["mixed", "smoke"]
    assert [p.text for p in load_suite("smoke")] == [
        "Hello, my name is",
        "The president of the United States is",
        "The capital of France is",
        "The future of AI is",
    ]
    mixed = tokenise(load_suite("mixed"), MODEL)
    lengths = sorted(len(r.prompt_token_ids) for r in mixed)
    assert len(mixed) >= 64
    assert lengths[0] <= 4
    assert lengths[-1] >= 512
    assert sum(lengths) > 2048  # more than one step's tokens: prefill is chunked
    assert sum(any("\u4e00" <= c <= "\u9fff" for c in r.prompt or "") for r in mixed) >= 8
    assert sum("def " in (r.prompt or "") for r in mixed) >= 4
    with pytest.raises(ParityError, match="unknown suite 'nope'"):
        load_suite("nope")


def test_an_empty_prompt_is_named() -> None:
    with pytest.raises(ParityError, match="'p7' is empty"):
        tokenise([Prompt("p7", text="")], MODEL)


# --------------------------------------------------------------------------- chat templates


def _with_template(tmp_path: Path, template: object, **config: object) -> Path:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, **config}))
    return tmp_path


def test_a_template_in_the_config_with_special_tokens(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}\n    {{ m.content | tojson }}{% endfor %}"
    model = _with_template(tmp_path, template, bos_token={"content": "<s>"})
    assert ChatTemplate(model).render([{"role": "user", "content": "a<b 你"}], "p0") == '<s>    "a<b 你"'


def test_several_templates(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert ChatTemplate(_with_template(tmp_path, named)).render([], "p0") == "D"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if %}", "is not valid"),
        ("{{ raise_exception('only users here') }}", "only users here"),
        ("{{ ''.__class__.__mro__ }}", "does not render"),
        ("{{ messages.append(1) }}", "does not render"),
        ("{% for i in range(10000000) %}x{% endfor %}", "does not render"),
        (None, "no chat template"),
    ],
)
def test_hostile_and_broken_templates(tmp_path: Path, template: object, message: str) -> None:
    with pytest.raises(ParityError, match=message):
        ChatTemplate(_with_template(tmp_path, template)).render([{"role": "user", "content": "x"}], "p0")


def test_a_prompt_may_have_sampling_parameters_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"prompt": "a", "sampling": {"temperature": 1, "stop": "x", "max_tokens": 8}}\n{"prompt": "b"}\n', "utf-8"
    )
    first, second = load_prompts(path)
    assert first.sampling == {"temperature": 1.0, "stop": ("x",)}
    assert first.max_tokens == 8
    assert not second.sampling
    assert second.max_tokens is None


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [
        ('"greedy"', "line 1: sampling is str, not an object"),
        ('{"top_q": 1}', "line 1: sampling.top_q is not a sampling parameter this parity knows (temperature, top_p"),
        ('{"n": 2}', "line 1: sampling.n cannot be a request's own"),
        ('{"min_tokens": "3"}', 'line 1: sampling.min_tokens must be a whole number, not "3"'),
        ('{"structured_outputs": {"regex": ""}}', 'line 1: sampling.structured_outputs has a regex that is ""'),
    ],
)
def test_a_mistake_in_a_prompts_own_parameters_names_line_and_parameter(
    tmp_path: Path, sampling: str, problem: str
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(f'{{"prompt": "a", "sampling": {sampling}}}\n', "utf-8")
    with pytest.raises(ParityError) as caught:
        load_prompts(path)
    assert problem in str(caught.value)


def test_parameters_beside_a_prompt_are_refused_with_what_to_write(tmp_path: Path) -> None:
    """As in a request to a server: they would change nothing, and nobody would know."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a", "category": "x"}\n{"prompt": "b", "top_k": 5, "temperature": 0.0, "stop": null}\n')
    with pytest.raises(ParityError, match=r"line 2 has temperature, top_k outside of `sampling`") as raised:
        load_prompts(file)
    assert raised.value.hint is not None
    assert "`jq -c '.sampling = {temperature, top_k} | del(.temperature, .top_k)' FILE.jsonl`" in str(raised.value.hint)
