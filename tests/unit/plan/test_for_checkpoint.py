"""What a backend needs for one checkpoint and not for another: read from its config.json, before any engine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from parity_backends.vllm.worker.arguments import Table, translate
from parity_backends.vllm.worker.checkpoints import has_linear_attention, linear_head_sizes
from parity_backends.vllm.worker.table import VLLM_READ

from parity.errors import ParityError
from parity.pipeline.planning import PlanRequest, load_backends, make_plan
from parity.plan import Plan
from parity.plan.checkpoint import shipped_checkpoint
from parity.plan.matrix import parse_axis
from parity.plan.variants import Variant

TINY = shipped_checkpoint("tiny-qwen3-next-mtp")


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """The shipped checkpoint with other values in its config.json; None takes one out."""
    assert TINY is not None

    def made(**changes: Any) -> Path:
        where = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(TINY, where)
        config = {**json.loads((where / "config.json").read_text()), **changes}
        config = {name: value for name, value in config.items() if value is not None}
        (where / "config.json").write_text(json.dumps(config))
        return where

    return made


def planned(model: Path, backend: str = "cuda", **fields: Any) -> Plan:
    return make_plan(PlanRequest(backends=[backend], suite="smoke", model=model, **fields), load_backends([backend]))


def asked(plan: Plan) -> set[Any]:
    return {arm.engine.get("gdn_prefill_backend") for arm in plan.arms}


HEADS_OF_128 = {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
NO_LINEAR = {"layer_types": None, "linear_key_head_dim": None, "linear_value_head_dim": None, "model_type": "qwen3"}


@pytest.mark.parametrize(
    ("backend", "changes", "expected"),
    [
        ("cuda", {}, "triton"),  # 64: what the shipped checkpoint and the tiny families have
        ("cuda", HEADS_OF_128, None),
        ("cuda", {**HEADS_OF_128, "linear_value_head_dim": 256}, "triton"),
        ("cuda", NO_LINEAR, None),
        ("ascend", {}, None),
        ("cpu", {}, None),
    ],
)
def test_the_prefill_of_gated_delta_networks_is_one_that_can(
    model: Any, backend: str, changes: dict[str, Any], expected: str | None
) -> None:
    """Every arm: the baseline's prefill scores all of them."""
    assert asked(planned(model(**changes), backend)) == {expected}


def test_it_is_looked_for_in_the_part_about_text(model: Any) -> None:
    sizes = {"linear_key_head_dim": 64, "linear_value_head_dim": 128}
    text = {"text_config": {**sizes, "layer_types": ["linear_attention"]}}
    assert asked(planned(model(**NO_LINEAR, **text))) == {"triton"}
    assert linear_head_sizes(text) == {64, 128}
    assert has_linear_attention(text)


def test_what_somebody_asked_for_stays(model: Any) -> None:
    assert asked(planned(model(), engine={"gdn_prefill_backend": "flashinfer"})) == {"flashinfer"}
    both = planned(model(), vary=[parse_axis("gdn_prefill_backend=triton,flashinfer")])
    assert asked(both) == {"triton", "flashinfer"}
    inside = planned(model(), engine={"additional_config": {"gdn_prefill_backend": "flashinfer"}})
    assert asked(inside) == {None}
    own = planned(model(), named_variants={"mine": Variant("mine")}, variants=("base", "mine"))
    assert asked(own) == {"triton"}


@pytest.mark.parametrize("version", VLLM_READ.split())
def test_it_reaches_every_release_that_has_a_choice(version: str, model: Any) -> None:
    arm = planned(model()).arms[0]
    done = translate(dict(arm.engine), dict(arm.env), Table(version))
    number = tuple(int(part) for part in version.split("."))
    assert (done.engine.get("gdn_prefill_backend") == "triton") == (number >= (0, 18))


# ------------------------------------------------------------------ what a CPU cannot run


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_another_precision_is_refused_on_a_cpu_only_where_it_cannot_be(model: Any, dtype: str) -> None:
    with pytest.raises(ParityError, match="gated delta networks take bfloat16 only"):
        planned(model(), "cpu", engine={"dtype": dtype})
    plan = planned(model(**NO_LINEAR), "cpu", engine={"dtype": dtype})
    assert {arm.engine["dtype"] for arm in plan.arms} == {dtype}
