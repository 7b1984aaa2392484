"""Plans: complete, checked, and the same after a trip through a file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import parity
from parity.errors import ParityError
from parity.plan import (
    Arm,
    Plan,
    Prompt,
    Sampling,
    Score,
    build_plan,
    check_fingerprint,
    parse_tolerance,
    read_checkpoint,
    read_plan,
)
from parity.records.engine_settings import pinned_settings
from parity.run import load_backend

MODEL = Path(parity.__file__).parent / "models" / "tiny-qwen3-next-mtp"
ENGINE = dict.fromkeys(pinned_settings(), 1)
ARMS = [Arm("cpu/base", "cpu", "base", ENGINE), Arm("cpu/mtp", "cpu", "mtp", ENGINE)]
PROMPTS = [Prompt("a", text="In the beginning"), Prompt("b", token_ids=tuple(range(3, 203)))]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return build_plan(read_checkpoint(MODEL), PROMPTS, ARMS)


def test_a_plan_survives_its_file(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan.to_json()))
    assert read_plan(file) == plan
    assert json.loads(file.read_text()) == plan.to_json()
    assert plan.baseline == "cpu/base"
    assert [arm.name for arm in plan.candidates] == ["cpu/mtp"]
    assert plan.expected_completions == 2


def test_length_is_what_is_needed_and_the_same_for_every_arm(plan: Plan) -> None:
    # 200 prompt tokens, 128 output tokens, one for scoring, rounded up to a multiple of 64.
    assert [arm.engine["max_model_len"] for arm in plan.arms] == [384, 384]
    checkpoint = read_checkpoint(MODEL)
    asked = build_plan(checkpoint, PROMPTS, ARMS, overrides={"max_model_len": 512, "max_num_seqs": 3})
    assert [(a.engine["max_model_len"], a.engine["max_num_seqs"]) for a in asked.arms] == [(512, 3)] * 2
    tight = build_plan(checkpoint, PROMPTS, ARMS, sampling=Sampling(max_tokens=2048 - 200), score=Score(mode="none"))
    assert tight.arms[0].engine["max_model_len"] == 2048


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": Sampling(max_tokens=2048 - 200)}, "'b' has 200 tokens; with 1849 more"),
        ({"overrides": {"max_model_len": 200}}, "'b' has 200 tokens, longer than max_model_len of 200"),
        ({"overrides": {"max_model_len": 4096}}, "max_position_embeddings is 2048"),
        ({"overrides": {"max_model_len": "x"}}, "max_model_len is 'x'"),
        ({"overrides": {"speculative_config": {}}}, "cannot be set for every arm"),
        ({"baseline": "gpu/base"}, "none of the arms cpu/base, cpu/mtp"),
        ({"sampling": Sampling(n=2)}, "greedy decoding gives the same sample"),
        ({"sampling": Sampling(temperature=-1.0)}, "temperature is -1"),
        ({"sampling": Sampling(logprobs=21)}, "logprobs is 21"),
        ({"rounds": 0}, "rounds is 0"),
    ],
)
def test_what_does_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParityError, match=message) as caught:
        build_plan(read_checkpoint(MODEL), PROMPTS, ARMS, **options)
    assert caught.value.hint


def test_prompts_that_do_not_fit() -> None:
    checkpoint = read_checkpoint(MODEL)
    with pytest.raises(ParityError, match="no prompts"):
        build_plan(checkpoint, [], ARMS)
    with pytest.raises(ParityError, match="'z' has the token id 2048"):
        build_plan(checkpoint, [Prompt("z", token_ids=(1, 2048))], ARMS)
    with pytest.raises(ParityError, match="'z' has no tokens"):
        build_plan(checkpoint, [Prompt("z", token_ids=())], ARMS)
    with pytest.raises(ParityError, match="'long' has 3000 tokens, longer than the checkpoint's"):
        build_plan(checkpoint, [Prompt("long", token_ids=(5,) * 3000)], ARMS)


@pytest.mark.parametrize("left_open", pinned_settings())
def test_a_setting_left_open_is_refused(left_open: str) -> None:
    if left_open == "max_model_len":
        return  # the plan itself pins that one
    engine = {name: 1 for name in pinned_settings() if name != left_open}
    with pytest.raises(ParityError, match=f"cpu/base leaves {left_open} to the engine"):
        build_plan(read_checkpoint(MODEL), PROMPTS, [replace(ARMS[0], engine=engine), ARMS[1]])


@pytest.mark.parametrize("name", ["cpu", "cuda", "ascend"])
def test_the_adapters_pin_everything(name: str) -> None:
    backend = load_backend(name)
    arms = [Arm(f"{name}/{v}", name, v, backend.engine_defaults(v, num_speculative_tokens=3)) for v in ("base", "mtp")]
    made = build_plan(read_checkpoint(MODEL), PROMPTS, arms)
    assert made.arms[1].engine["speculative_config"]["num_speculative_tokens"] == 3
    assert "speculative_config" not in made.arms[0].engine


def _set(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(plan: dict[str, Any]) -> None:
        at: Any = plan
        *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
        for part in parents:
            at = at[part]
        at[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("schema", "parity.plan/2"), "schema is 'parity.plan/2'"),
        (_set("sampling.max_tokens", "8"), "sampling.max_tokens must be a whole number"),
        (_set("sampling.beam", 3), "sampling.beam is not a sampling parameter"),
        (_set("requests.0.sampling", {"beam": 3}), r"requests\[0\].sampling.beam is not a sampling parameter"),
        (_set("requests.0.sampling", {"n": 3}), r"requests\[0\].sampling.n cannot be a request's own"),
        (_set("sampling", []), "sampling must be a JSON object"),
        (
            _set("requests.1.prompt_token_ids", [1, None]),
            r"requests\[1\].prompt_token_ids\[1\] must be a whole number, not null",
        ),
        (_set("requests.1.id", "a"), "names the request 'a' twice"),
        (_set("requests", []), "no requests"),
        (_set("arms.0.name", "../../etc/passwd"), r"arms\[0\].name is '../../etc/passwd'"),
        (_set("arms.0.name", "cpu/.."), r"arms\[0\].name"),
        (_set("arms.1.name", "cpu/base"), "names the arm 'cpu/base' twice"),
        (_set("arms.0.env", {"A": 1}), r"arms\[0\].env.A must be a string, not 1"),
        (_set("baseline", "x/y"), "baseline 'x/y' is none of"),
        (_set("score.mode", "some"), "score.mode is 'some'"),
        (_set("tolerance", -1), "tolerance must be"),
        (_set("tolerance", float("nan")), "tolerance must be"),
        (_set("model.name", None), "model.name must be a string"),
        (lambda plan: plan.pop("arms"), "arms is missing"),
        (lambda plan: plan.pop("sampling"), "sampling is missing"),
        (_set("round", 3), r"plan.json: round is unknown \(known: model, requests"),
        (_set("arms.0.engin", {}), r"arms\[0\].engin is unknown"),
        (_set("arms.0.engine", []), r"arms\[0\].engine must be a JSON object, not \[\]"),
        (_set("arbiter", {"name": "x/y"}), "arbiter.backend is missing"),
        (_set("model.vocab_size", True), "model.vocab_size must be a whole number, not true"),
        (_set("requests.0.messages", [{}]), r"requests\[0\].messages must be a list of objects"),
        (_set("churn", {"arival": "fixed"}), r"churn.arival is unknown \(known: arrival"),
        (_set("churn", {"abort_after": [1, 2, 3]}), "churn.abort_after must be two whole numbers"),
        (_set("churn", {"every": "often"}), 'churn.every must be a number, not "often"'),
    ],
)
def test_a_broken_plan_file_is_named_with_its_field(
    plan: Plan, tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    value = json.loads(json.dumps(plan.to_json()))
    change(value)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(value))
    with pytest.raises(ParityError, match=message) as caught:
        read_plan(file)
    assert str(file) in str(caught.value)


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    with pytest.raises(ParityError, match="cannot read"):
        read_plan(file)
    for content, message in (
        (b"", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[" * 10**5, "not JSON"),
        (b"[]", "must be a JSON"),
    ):
        file.write_bytes(content)
        with pytest.raises(ParityError, match=message):
            read_plan(file)


def test_tolerance() -> None:
    assert parse_tolerance("auto") == "auto"
    assert parse_tolerance("0.5") == 0.5
    for bad in ("x", True, "-1", "inf"):
        with pytest.raises((ValueError, TypeError)):
            parse_tolerance(bad)


# --------------------------------------------------------------------------- checkpoints


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODEL, tmp_path / "copy"))


def test_a_fingerprint_is_of_the_content(copy: Path) -> None:
    original, same = read_checkpoint(MODEL).model, read_checkpoint(copy).model
    check_fingerprint(original, same)
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(ParityError, match="weights differs"):
        check_fingerprint(original, read_checkpoint(copy).model)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "has no config.json"),
        ("tokenizer.json", "has no tokenizer.json"),
        ("model.safetensors", "holds no weights"),
    ],
)
def test_an_incomplete_checkpoint(copy: Path, missing: str, message: str) -> None:
    (copy / missing).unlink()
    with pytest.raises(ParityError, match=message):
        read_checkpoint(copy)


def test_the_other_eos_tokens_are_stop_tokens(copy: Path) -> None:
    """With generation_config="vllm" an engine would go on past an EOS that only generation_config.json has."""
    (copy / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    checkpoint = read_checkpoint(copy)
    assert checkpoint.model.eos_token_ids == (0, 2)
    assert build_plan(checkpoint, PROMPTS, ARMS).sampling.stop_token_ids == (2,)
    ignoring = build_plan(checkpoint, PROMPTS, ARMS, sampling=Sampling(ignore_eos=True))
    assert ignoring.sampling.stop_token_ids == ()


def test_a_multimodal_config_keeps_its_numbers_in_text_config(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    text = {name: config.pop(name) for name in ("vocab_size", "max_position_embeddings", "eos_token_id")}
    (copy / "config.json").write_text(json.dumps({**config, "text_config": text}))
    checkpoint = read_checkpoint(copy)
    assert (checkpoint.model.vocab_size, checkpoint.max_positions) == (2048, 2048)


def test_a_config_that_is_not_json(copy: Path) -> None:
    (copy / "config.json").write_text("{")
    with pytest.raises(ParityError, match="cannot read"):
        read_checkpoint(copy)
