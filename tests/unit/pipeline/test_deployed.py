"""Arms as production runs them: what a plan makes of `deployed`, `--like` and `--ladder`, and what a run says of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backend import FakeBackend
from captures import TEXT, capture, completion

from parity.comparator import PINNED, compare
from parity.errors import ParityError
from parity.messages import message
from parity.pipeline.compared import Compared
from parity.pipeline.deployed import first_rung
from parity.pipeline.outcome import conclude
from parity.pipeline.planning import PlanRequest, make_plan
from parity.plan import Arm, Plan, Sampling
from parity.records import Verdict
from parity.records.engine_settings import default_settings
from parity.run import Backend, load_backend
from parity.tiny import write_checkpoint

COMMAND = (
    "VLLM_ATTENTION_BACKEND=FLASH_ATTN vllm serve --port 80 --dtype float16 --tensor-parallel-size 4 "
    "--kv-cache-dtype fp8 --max-num-seqs 16 --gpu-memory-utilization 0.95 "
    """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
)


OF_CHECKPOINT = {"gdn_prefill_backend": "triton"}
"""What the embedded checkpoint needs on a GPU: heads of 64."""


def backends() -> dict[str, Backend]:
    return {"cuda": load_backend("cuda")}


def planned(tmp_path: Path, model: Path | None = None, **request: Any) -> Plan:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("In the beginning\nThe capital of France is\n")
    tiny = load_backend("cpu").default_model()
    asked = PlanRequest(
        ("cuda",), model=model or tiny, prompts=prompts, sampling=Sampling(max_tokens=8), **request
    )  # fmt: skip
    return make_plan(asked, backends())


def engine_of(plan: Plan, variant: str) -> dict[str, Any]:
    return dict(plan.arm(f"cuda/{variant}").engine)


def test_deployed_leaves_to_the_engine_what_base_pins(tmp_path: Path) -> None:
    plan = planned(tmp_path, variants=("base", "deployed"), num_speculative_tokens=3)
    deployed = plan.arm("cuda/deployed")
    assert plan.baseline == "cuda/base"
    assert deployed.deployed
    assert deployed.engine == {
        **OF_CHECKPOINT,
        "generation_config": "vllm",
        "disable_log_stats": False,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
    }
    assert Plan.from_json(plan.to_json()) == plan


def test_what_the_user_asks_of_every_arm_stands_below_the_command(tmp_path: Path) -> None:
    request = {"variants": ("base", "deployed"), "engine": {"max_num_seqs": 4, "block_size": 32}}
    assert engine_of(planned(tmp_path, **request), "deployed")["max_num_seqs"] == 4
    like = planned(tmp_path, like=COMMAND, **request)
    assert engine_of(like, "deployed")["max_num_seqs"] == 16
    assert engine_of(like, "deployed")["block_size"] == 32
    assert engine_of(like, "base")["max_num_seqs"] == 4


def on_cpu(model: Path | None, **request: Any) -> Plan:
    asked = PlanRequest(("cpu",), ("base", "deployed"), model=model, suite="smoke", **request)
    return make_plan(asked, {"cpu": load_backend("cpu")})


def test_on_a_cpu_only_hybrid_models_lose_the_prefix_cache(tmp_path: Path) -> None:
    """The embedded checkpoint is hybrid, and vLLM's engine ends there with MTP and the cache that it turns on."""
    write_checkpoint("mimo", tmp_path / "mimo")
    caching = {False: on_cpu(None), True: on_cpu(tmp_path / "mimo")}
    for left, plan in caching.items():
        assert plan.arm("cpu/base").engine["enable_prefix_caching"] is False
        assert ("enable_prefix_caching" not in plan.arm("cpu/deployed").engine) is left
        rungs = [arm.variant for arm in on_cpu(tmp_path / "mimo" if left else None, ladder=True).arms]
        assert ("3-prefix" in rungs) is left
    asked = {"engine": {"enable_prefix_caching": True}}
    assert not on_cpu(tmp_path / "mimo", **asked).skipped
    with pytest.raises(ParityError, match="prefix caching of a hybrid model"):
        on_cpu(None, **asked)


def test_a_command_is_taken_over_as_it_is_and_base_stays_pinned(tmp_path: Path) -> None:
    plan = planned(tmp_path, variants=("base", "deployed"), like=COMMAND)
    base, deployed = engine_of(plan, "base"), engine_of(plan, "deployed")
    assert deployed == {
        **OF_CHECKPOINT,
        "generation_config": "vllm",
        "disable_log_stats": False,
        "dtype": "float16",
        "tensor_parallel_size": 4,
        "kv_cache_dtype": "fp8",
        "max_num_seqs": 16,
        "gpu_memory_utilization": 0.95,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
    }
    # What is run is the same, how it is run is not.
    assert (base["dtype"], base["tensor_parallel_size"], base["kv_cache_dtype"]) == ("float16", 4, "fp8")
    assert (base["max_num_seqs"], base["async_scheduling"], base["enforce_eager"]) == (64, False, True)
    assert base.get("gpu_memory_utilization") != 0.95
    assert "speculative_config" not in base
    assert plan.set_aside == ("--port",)
    variables = [plan.arm(f"cuda/{name}").env for name in ("base", "deployed")]
    assert all(env["VLLM_ATTENTION_BACKEND"] == "FLASH_ATTN" for env in variables)
    assert ["VLLM_USE_V2_MODEL_RUNNER" in env for env in variables] == [True, False]


def test_the_model_of_the_command_is_that_of_the_plan_where_it_is_here(tmp_path: Path) -> None:
    tiny = load_backend("cpu").default_model()
    asked = PlanRequest(("cuda",), ("base", "deployed"), suite="smoke", like=f"vllm serve {tiny}")
    assert make_plan(asked, backends()).model.path == str(tiny)
    with pytest.raises(ParityError, match="'some/model', which is no directory here") as elsewhere:
        make_plan(replace(asked, like="vllm serve some/model"), backends())
    assert "--model DIR" in str(elsewhere.value.hint)


def test_a_backend_that_knows_no_command_line_refuses_one(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="'fake' knows nothing of `vllm serve`"):
        make_plan(PlanRequest(("fake",), suite="smoke", like="vllm serve x"), {"fake": FakeBackend()})


def ladder_of(tmp_path: Path, **request: Any) -> list[Arm]:
    return list(planned(tmp_path, variants=("base", "deployed"), ladder=True, **request).arms)


@pytest.mark.parametrize("like", [None, COMMAND])
def test_each_rung_changes_one_setting_and_the_last_is_production(tmp_path: Path, like: str | None) -> None:
    base, *rungs = ladder_of(tmp_path, like=like)
    assert base.variant == "base"
    assert rungs[-1].variant == "deployed"
    whole = planned(tmp_path, variants=("base", "deployed"), like=like).arm("cuda/deployed")
    assert (rungs[-1].engine, rungs[-1].env) == (whole.engine, whole.env)
    for before, arm in itertools.pairwise([base, *rungs[:-1]]):
        changed = [name for name in {*before.engine, *arm.engine} if before.engine.get(name) != arm.engine.get(name)]
        changed += [name for name in {*before.env, *arm.env} if before.env.get(name) != arm.env.get(name)]
        assert len(changed) == 1, arm.name
        assert changed[0] in (arm.rung or "")
    numbers = [arm.variant.partition("-")[0] for arm in rungs[:-1]]
    assert numbers == [str(number) for number in range(1, len(rungs))]


def test_speculation_is_the_first_rung_and_the_runner_the_last_but_the_rest(tmp_path: Path) -> None:
    names = [arm.variant for arm in ladder_of(tmp_path, like=COMMAND)]
    assert names[:4] == ["base", "1-k=3", "2-async", "3-prefix"]
    assert names[-1] == "deployed"
    assert "USE_V2_MODEL_RUNNER" in names[-2]
    assert any(name.endswith("-seqs=16") for name in names)


def test_a_ladder_and_axes_are_refused_together(tmp_path: Path) -> None:
    from parity.plan.matrix import parse_axis

    with pytest.raises(ParityError, match="--ladder and --vary"):
        ladder_of(tmp_path, vary=[parse_axis("seqs=1,2")])


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (
            "PPDD",
            "cuda/3-prefix is the first rung that diverges: enable_prefix_caching unpinned on top of cuda/2-async",
        ),
        ("DDDD", "cuda/1-k=3 diverges, the first rung: speculative_config="),
        ("PIDD", "on top of cuda/2-async, which is INCONCLUSIVE"),
        ("PPPP", "no rung diverges, up to cuda/4-chunked"),
        ("PPIP", None),
    ],
)
def test_the_first_rung_that_diverges_is_named(tmp_path: Path, verdicts: str, said: str | None) -> None:
    plan = planned(tmp_path, variants=("base", "deployed"), ladder=True, like=COMMAND)
    plan = replace(plan, arms=plan.arms[:5])
    words = {"P": Verdict.PASS, "D": Verdict.DIVERGED, "I": Verdict.INCONCLUSIVE}
    found = first_rung(plan, {arm.name: words[one] for arm, one in zip(plan.candidates, verdicts, strict=True)})
    assert [said in str(one) for one in found] == ([True] if said else []) if said else found == []


# ------------------------------------------------------------------ what a PASS says nothing about

PINNED_ENGINE: dict[str, Any] = {
    "asked": default_settings(),
    "async_scheduling": False,
    "enforce_eager": True,
    "enable_prefix_caching": False,
    "use_v2_model_runner": False,
}


def reasons(engine: dict[str, Any], tokens: tuple[int, ...] = TEXT) -> list[str]:
    base = capture("cpu/base", completion(TEXT), engine=PINNED_ENGINE)
    found = compare(base, capture("cpu/mtp", completion(tokens), engine=engine))
    return [str(one) for one in found.reasons if one.id == PINNED]


def test_a_pass_of_pinned_arms_names_what_production_has_otherwise() -> None:
    (said,) = reasons(PINNED_ENGINE)
    for setting in ("async_scheduling=true", "enforce_eager=false", "enable_prefix_caching=true"):
        assert setting in said
    assert "use_v2_model_runner=true" in said
    (said,) = reasons(
        {**PINNED_ENGINE, "asked": {**default_settings(), "async_scheduling": True}, "async_scheduling": True}
    )
    assert "async_scheduling" not in said


@pytest.mark.parametrize(
    "engine",
    [
        {},  # a server
        {**PINNED_ENGINE, "asked": {"generation_config": "vllm"}},  # an engine that was left alone
        {**PINNED_ENGINE, "asked": {**default_settings(), "async_scheduling": True, "enforce_eager": False,
         "enable_prefix_caching": True}, "async_scheduling": True, "enforce_eager": False,
         "enable_prefix_caching": True, "use_v2_model_runner": True},
    ],
)  # fmt: skip
def test_arms_that_are_not_pinned_say_nothing_of_it(engine: dict[str, Any]) -> None:
    assert reasons(engine) == []


def test_only_a_pass_says_it() -> None:
    assert reasons(PINNED_ENGINE, (*TEXT[:5], 1000, *TEXT[6:])) == []  # an id outside the vocabulary


def test_it_is_said_once_for_a_run_of_many_arms(tmp_path: Path) -> None:
    base = capture("cpu/base", completion(TEXT), engine=PINNED_ENGINE)
    comparisons = Compared(tmp_path)
    for name in ("cpu/a", "cpu/b", "cpu/c"):
        comparisons.add(name, compare(base, capture(name, completion(TEXT), engine=PINNED_ENGINE)))
    run = conclude("run", tmp_path, "cpu/base", comparisons, [], {}, lambda verdicts: [message("x.y", "the ladder")])
    assert [reason.id for reason in run.reasons].count(PINNED) == 1
    assert "the ladder" in [str(reason) for reason in run.reasons]


def test_what_is_said_of_several_arms_is_said_once_with_their_names(tmp_path: Path) -> None:
    base = capture("cpu/base", completion(TEXT), engine=PINNED_ENGINE)
    comparisons = Compared(tmp_path)
    for name in ("cpu/a", "cpu/b"):
        comparisons.add(name, compare(base, capture(name, completion(TEXT), engine=PINNED_ENGINE)))
    said = [str(one) for one in conclude("run", tmp_path, "cpu/base", comparisons, [], {}).reasons]
    assert len(said) == len(set(said))
    assert said[0].startswith("cpu/a, cpu/b: 1 completion")


def test_arms_that_leave_out_different_things_are_named(tmp_path: Path) -> None:
    base = capture("cpu/base", completion(TEXT), engine=PINNED_ENGINE)
    asynchronous = {
        **PINNED_ENGINE, "asked": {**default_settings(), "async_scheduling": True}, "async_scheduling": True
    }  # fmt: skip
    comparisons = Compared(tmp_path)
    for name, engine in (("cpu/a", PINNED_ENGINE), ("cpu/b", asynchronous), ("cpu/c", PINNED_ENGINE)):
        comparisons.add(name, compare(base, capture(name, completion(TEXT), engine=engine)))
    said = [
        str(one)
        for one in conclude("run", tmp_path, "cpu/base", comparisons, [], {}).reasons
        if "production" in str(one)
    ]
    assert [one.partition(": ")[0] for one in said] == ["cpu/a, cpu/c", "cpu/b"]


def test_a_run_with_a_deployed_arm_says_nothing_of_its_pinned_ones(tmp_path: Path) -> None:
    base = capture("cpu/base", completion(TEXT), engine=PINNED_ENGINE)
    comparisons = Compared(tmp_path)
    for name, engine in (("cpu/mtp", PINNED_ENGINE), ("cpu/deployed", {}), ("cuda/mtp", PINNED_ENGINE)):
        comparisons.add(name, compare(base, capture(name, completion(TEXT), engine=engine)))
    run = conclude("run", tmp_path, "cpu/base", comparisons, [], {}, as_deployed={"cpu"})
    assert [one.id for one in run.reasons].count(PINNED) == 1  # cuda/mtp
    run = conclude("run", tmp_path, "cpu/base", comparisons, [], {}, as_deployed={"cpu", "cuda"})
    assert PINNED not in [one.id for one in run.reasons]
