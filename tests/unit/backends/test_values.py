"""Values that no vLLM takes for an argument are said before an engine starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from parity_backends.vllm.values import check_values

from parity.cli.main import cli
from parity.errors import ParityError
from parity.plan.checkpoint import shipped_checkpoint


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("max_num_seqs", "abc", "a whole number from 1 on"),
        ("max_num_seqs", 0, "a whole number from 1 on"),
        ("max_num_seqs", True, "a whole number from 1 on"),
        ("max_num_seqs", 1.5, "a whole number from 1 on"),
        ("max_num_seqs", float("inf"), "a whole number from 1 on"),
        ("max_num_seqs", float("nan"), "a whole number from 1 on"),
        ("max_model_len", "4k", "a whole number"),
        ("seed", [1], "a whole number"),
        ("enable_prefix_caching", "maybe", "true or false"),
        ("enable_prefix_caching", "True", "true or false"),
        ("enforce_eager", 2, "true or false"),
        ("enforce_eager", {}, "true or false"),
        ("gpu_memory_utilization", 1.5, "a number above 0 and up to 1"),
        ("gpu_memory_utilization", "90%", "a number above 0 and up to 1"),
        ("cpu_offload_gb", "4 GB", "a number"),
        ("additional_config", "x", "an object in JSON"),
    ],
)
def test_what_no_argument_takes(name: str, value: Any, takes: str) -> None:
    with pytest.raises(ParityError) as raised:
        check_values({"dtype": "bfloat16", name: value})
    assert str(raised.value.message).startswith(f"vLLM's {name} takes {takes}, and not ")
    assert f"`--engine {name}=" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_seqs", 64),
        ("max_num_seqs", 64.0),
        ("max_num_seqs", None),
        ("max_model_len", -1),
        ("enable_prefix_caching", False),
        ("enforce_eager", 1),
        ("gpu_memory_utilization", 1),
        ("kv_cache_dtype", "fp9"),
        ("of_a_vllm_to_come", "anything"),
        ("compilation_config", 3),
        ("hf_token", True),
    ],
)
def test_what_may_be_taken_is_the_engines_matter(name: str, value: Any) -> None:
    check_values({name: value})


def test_a_length_that_the_engine_chooses_is_not_too_short(tmp_path: Path) -> None:
    """`--max-model-len auto` is -1."""
    like = ("--like", "vllm serve m --max-model-len auto", "--model", str(shipped_checkpoint("tiny-qwen3-next-mtp")))
    options = ("--variants", "base,deployed", "--suite", "smoke", *like, "-o", str(tmp_path / "plan.json"))
    done = CliRunner().invoke(cli, ["plan", "--backends", "cpu", *options])
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "enable_prefix_caching=maybe"), "cpu/base: vLLM's enable_prefix_caching takes true or false"),
        (("--engine", "max_model_len=4k"), "cpu/base: vLLM's max_model_len takes a whole number, and not"),
        (("--vary", "seqs=4,x"), "vLLM's max_num_seqs takes a whole number from 1 on"),
    ],
)
def test_it_is_said_before_anything_is_made_of_it(options: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(cli, ["plan", "--backends", "cpu", "--suite", "smoke", *options])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
