"""Axes over settings: their values, the arms they make, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parity.errors import ParityError
from parity.pipeline.planning import PlanRequest, load_backends, make_plan
from parity.plan import Arm, Plan, Sampling
from parity.plan.churn import ChurnRequest
from parity.plan.config import read_config
from parity.plan.matrix import apply, check_axes, contradiction, parse_axis, points

ALL_AXES = [
    "num_speculative_tokens=0,1,3",
    "async_scheduling=true,false",
    "cudagraph_mode=NONE,PIECEWISE,FULL_AND_PIECEWISE",
    "max_num_seqs=1,32",
]


def plan_with(*axes: str, **fields: Any) -> Plan:
    request = PlanRequest(suite="smoke", vary=[parse_axis(axis) for axis in axes], **fields)
    return make_plan(request, load_backends(request.backends))


@pytest.mark.parametrize(
    ("text", "name", "values", "labels"),
    [
        ("max_num_seqs=1,32", "max_num_seqs", (1, 32), ["seqs=1", "seqs=32"]),
        ("k=0,3", "num_speculative_tokens", (0, 3), ["k=0", "k=3"]),
        ("async_scheduling=true,False", "async_scheduling", (True, False), ["async=true", "async=false"]),
        ("cudagraph_mode=NONE", "compilation_config.cudagraph_mode", ("NONE",), ["graph=NONE"]),
        ("a.b=[1.5, null]", "a.b", (1.5, None), ["b=1.5", "b=null"]),
        ("executor=mp,ray", "distributed_executor_backend", ("mp", "ray"), ["executor=mp", "executor=ray"]),
        ("env.VLLM_X=0,a/b c", "env.VLLM_X", ("0", "a/b c"), ["VLLM_X=0", "VLLM_X=a_b_c"]),
    ],
)
def test_an_axis_is_read(text: str, name: str, values: tuple[object, ...], labels: list[str]) -> None:
    axis = parse_axis(text)
    assert (axis.name, axis.values) == (name, values)
    assert [axis.label(value) for value in axis.values] == labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_num_seqs", "not NAME=VALUE"),
        ("max_num_seqs=", "not NAME=VALUE"),
        ("max num=1", "not the name"),
        ("seqs=1,,2", "empty value"),
        ("seqs=1,1", "twice"),
        ("k=-1", "whole numbers"),
        ("k=true", "whole numbers"),
        ("speculative_config.method=mtp", "cannot be varied"),
        ("model=a,b", "cannot be varied"),
    ],
)
def test_a_bad_axis_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_axis(text)


def test_values_that_are_no_words_have_stable_names() -> None:
    axis = parse_axis('hf_overrides=[{"a": 1}, {"a": 2}]')
    labels = [axis.label(value) for value in axis.values]
    assert labels[0] != labels[1]
    assert labels == [parse_axis('hf_overrides=[{"a": 1}, {"a": 2}]').label(value) for value in axis.values]
    plan = plan_with('hf_overrides=[{"a": 1}, {"a": 2}]', "k=0,1", variants=("base", "mtp"))
    assert [arm.engine["hf_overrides"] for arm in plan.arms] == [{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}]


def test_the_experiment_of_the_report_on_45100_on_a_cpu() -> None:
    plan = plan_with(*ALL_AXES)
    assert [arm.name for arm in plan.arms] == [
        f"cpu/k={k}+async=false+graph=NONE+seqs={seqs}" for k in (0, 1, 3) for seqs in (1, 32)
    ]
    assert len(plan.skipped) == 36 - 6
    assert plan.baseline == "cpu/k=0+async=false+graph=NONE+seqs=1"
    reasons = {one.arm: str(one.reason) for one in plan.skipped}
    assert "CUDA graphs" in reasons["cpu/k=3+async=false+graph=PIECEWISE+seqs=32"]
    assert "async" in reasons["cpu/k=3+async=true+graph=NONE+seqs=32"]
    by_name = {arm.name: arm.engine for arm in plan.arms}
    deep = by_name["cpu/k=3+async=false+graph=NONE+seqs=32"]
    assert deep["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert deep["max_num_seqs"] == 32
    assert "speculative_config" not in by_name["cpu/k=0+async=false+graph=NONE+seqs=32"]
    assert Plan.from_json(plan.to_json()) == plan


def test_the_same_on_cuda_leaves_nothing_out() -> None:
    plan = plan_with(*ALL_AXES, backends=("cuda",), model=load_backends(["cpu"])["cpu"].default_model())
    assert len(plan.arms) == 36
    assert not plan.skipped
    graph = plan.arm("cuda/k=3+async=true+graph=FULL_AND_PIECEWISE+seqs=32").engine
    assert graph["compilation_config"] == {"cudagraph_mode": "FULL_AND_PIECEWISE"}
    assert graph["enforce_eager"] is False
    assert graph["async_scheduling"] is True


def test_ascend_takes_fifteen_drafts_at_most() -> None:
    plan = plan_with("k=0,15,16", backends=("ascend",), model=load_backends(["cpu"])["cpu"].default_model())
    assert [arm.name for arm in plan.arms] == ["ascend/k=0", "ascend/k=15"]
    assert "vllm-ascend takes 15 at most" in str(plan.skipped[0].reason)


def test_variants_and_axes_multiply() -> None:
    plan = plan_with("seqs=1,4", variants=("base", "mtp"))
    assert [arm.name for arm in plan.arms] == [
        "cpu/base+seqs=1",
        "cpu/base+seqs=4",
        "cpu/mtp+seqs=1",
        "cpu/mtp+seqs=4",
    ]
    assert plan.baseline == "cpu/base+seqs=1"


def test_without_axes_nothing_has_changed() -> None:
    plan = plan_with()
    assert [arm.name for arm in plan.arms] == ["cpu/base", "cpu/mtp"]
    assert "skipped" not in plan.to_json()
    assert "churn" not in plan.to_json()


def test_a_positive_control_is_a_copy_of_the_last_combination() -> None:
    plan = plan_with("k=0,2", "seqs=1,4", positive_controls=("none",))
    control = plan.arms[-1]
    assert control.name == "cpu/k=2+seqs=4-control-none"
    assert control.engine == plan.arm("cpu/k=2+seqs=4").engine


@pytest.mark.parametrize(
    ("axes", "fields", "message"),
    [
        (["seqs=1,2", "max_num_seqs=3,4"], {}, "max_num_seqs twice"),
        (["seqs=1,2"], {"engine": {"max_num_seqs": 3}}, "for every arm and varied"),
        (["seqs=" + ",".join(map(str, range(1, 20))), "batched=" + ",".join(map(str, range(100, 120)))], {}, "380"),
        (["a.x=1,2", "b.x=1,2"], {}, "both be called 'x'"),
        (["async=true"], {}, "none of the arms can run"),
        (["k=0", "async=true,false"], {}, "nothing to be compared with"),
        (["async=true,false"], {"baseline": "cpu/base+async=true"}, "cannot run: the CPU platform"),
        (["max_model_len=64,16"], {}, "too short"),
        (["max_num_seqs.x=1,2"], {}, "not a mapping"),
    ],
)
def test_what_does_not_fit_is_refused(axes: list[str], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ParityError) as caught:
        plan_with(*axes, **fields)
    assert message in str(caught.value)
    assert caught.value.hint


def test_a_point_leaves_the_arm_it_is_applied_to_alone() -> None:
    arm = Arm("x/y", "x", "y", {"compilation_config": {"mode": 3}, "enforce_eager": True}, {"A": "1"})
    grid = points([parse_axis("cudagraph_mode=FULL"), parse_axis("env.B=2"), parse_axis("eager=true")])
    varied = apply(arm, grid[0])
    assert varied.engine == {"compilation_config": {"mode": 3, "cudagraph_mode": "FULL"}, "enforce_eager": True}
    assert varied.env == {"A": "1", "B": "2"}
    assert arm.engine == {"compilation_config": {"mode": 3}, "enforce_eager": True}
    assert "captures no CUDA graphs" in str(contradiction(varied.engine))
    check_axes([], {})


def test_variants_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "parity.toml"
    file.write_text(
        '[variants.wide]\nextends = "mtp"\nnum_speculative_tokens = 3\nmax_num_seqs = 7\nenv.A = "1"\n'
        '[variants.wider]\nextends = "wide"\nmax_num_seqs = 9\n'
    )
    named = read_config(file).variants
    plan = plan_with("batched=64,128", variants=("base", "wider"), named_variants=named)
    assert [arm.name for arm in plan.arms][-1] == "cpu/wider+batched=128"
    wider = plan.arm("cpu/wider+batched=64")
    assert wider.engine["speculative_config"]["num_speculative_tokens"] == 3
    assert wider.engine["max_num_seqs"] == 9
    assert wider.env["A"] == "1"
    beside = plan_with("k=0,1", variants=("base", "mtp", "wide"), named_variants=named)
    assert [arm.name for arm in beside.arms] == ["cpu/k=0", "cpu/k=1", "cpu/wide"]


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[variants.base]\nseed = 1\n", "cannot name a variant"),
        ("[variants.x]\nmodel = 'y'\n", "model cannot stand here"),
        (
            "[variants.x]\nspeculative_config = { method = 'ngram' }\n",
            "needs its method and its num_speculative_tokens",
        ),
        ("[variants.x]\nspeculative_config = 2\n", "needs its method and its num_speculative_tokens"),
        ("[variants.x]\nnum_speculative_tokens = 0\n", "num_speculative_tokens is 0"),
        ("[variants.x]\nextends = 3\n", "extends is 3"),
        ("[variants.x]\nextends = 'y'\n[variants.y]\nextends = 'x'\n", "extend each other"),
        ("[variants.x]\nenv = 3\n", "env must be a table"),
    ],
)
def test_a_bad_variant_is_refused(tmp_path: Path, toml: str, message: str) -> None:
    file = tmp_path / "parity.toml"
    file.write_text(toml)
    with pytest.raises(ParityError, match=message):
        read_config(file)


def test_a_variant_can_draft_by_n_grams(tmp_path: Path) -> None:
    file = tmp_path / "parity.toml"
    file.write_text(
        "[variants.ngram]\nextends = 'mtp'\n"
        "speculative_config = { method = 'ngram', num_speculative_tokens = 2, prompt_lookup_max = 3 }\n"
    )
    plan = plan_with(variants=("base", "ngram"), named_variants=read_config(file).variants)
    drafts = plan.arms[1].engine["speculative_config"]
    assert drafts == {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}


def test_samples_are_copies_of_the_request_where_decoding_is_greedy() -> None:
    plan = plan_with(samples=3, rounds=5)
    assert len(plan.requests) == 12
    assert [request.id for request in plan.requests[:5]] == [
        f"{plan.requests[i % 4].id.split('#')[0]}#{1 + i // 4}" for i in range(5)
    ]
    assert plan.sampling.n == 1
    assert plan.expected_completions == 4 * 3 * 5


def test_samples_are_n_where_sampling_is_random() -> None:
    plan = plan_with(samples=3, sampling=Sampling(temperature=0.7))
    assert plan.sampling.n == 3
    assert len(plan.requests) == 4
    with pytest.raises(ParityError, match="both --n and --samples"):
        plan_with(samples=3, sampling=Sampling(temperature=0.7, n=2))


def test_churn_stands_in_the_plan() -> None:
    plan = plan_with(
        "k=0,1", churn=ChurnRequest(preset="heavy", kv_blocks=40), sampling=Sampling(max_tokens=64, seed=5)
    )
    assert plan.churn.arrival == "poisson"
    assert plan.churn.seed == 5
    assert plan.churn.kv_blocks == 40
    assert {arm.engine["num_gpu_blocks_override"] for arm in plan.arms} == {40}
    limits = [request.max_tokens for request in plan.requests]
    assert all(limit is not None and 8 <= limit <= 64 for limit in limits)
    assert len(set(limits)) > 1
    assert Plan.from_json(plan.to_json()) == plan
    again = plan_with("k=0,1", churn=ChurnRequest(preset="heavy"), sampling=Sampling(max_tokens=64, seed=6))
    assert [request.max_tokens for request in again.requests] != limits


def test_a_needle_among_copies_is_the_first_of_them() -> None:
    first = plan_with().requests[0].id
    plan = plan_with(samples=2, churn=ChurnRequest(needle=first))
    assert plan.churn.needle == f"{first}#1"
    assert plan.churn.batch_sizes == (4, 32)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ChurnRequest(needle="nobody"), "none of the plan's requests"),
        (ChurnRequest(arrival=("fixed", 0.0, "steps")), "one arrival every 0"),
        (ChurnRequest(arrival=("poisson", 0.1, "seconds")), "asynchronous engine"),
        (ChurnRequest(arrival=("poisson", 1.0, "steps"), asynchronous=True), "no steps"),
        (ChurnRequest(abort=(0.95, None)), "0.95 of the requests"),
        (ChurnRequest(abort=(0.1, (5, 2))), "abort_after is 5:2"),
        (ChurnRequest(batch_sizes=(0, 2)), "batch_sizes is 0:2"),
        (ChurnRequest(output_lengths=(4, 400)), "output lengths 4:400"),
    ],
)
def test_churn_that_makes_no_sense_is_refused(asked: ChurnRequest, message: str) -> None:
    with pytest.raises(ParityError) as caught:
        plan_with(churn=asked)
    assert message in str(caught.value)
