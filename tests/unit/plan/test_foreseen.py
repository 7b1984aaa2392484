"""What can be known at once is said before an engine starts: misspelt settings, drafts that do not fit, no layers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from parity.errors import ParityError
from parity.pipeline.planning import PlanRequest, load_backends, make_plan
from parity.plan import Plan
from parity.plan.checkpoint import shipped_checkpoint
from parity.plan.matrix import parse_axis
from parity.plan.variants import Variant
from parity.run import load_backend

TINY = shipped_checkpoint("tiny-qwen3-next-mtp")


def planned(backend: str = "cpu", **fields: Any) -> Plan:
    wanted = PlanRequest(backends=[backend], suite="smoke", **{"model": TINY, **fields})
    return make_plan(wanted, load_backends([backend]))


def refused(**fields: Any) -> tuple[str, str]:
    with pytest.raises(ParityError) as caught:
        planned(**fields)
    return str(caught.value), str(caught.value.hint)


@pytest.mark.parametrize("backend", ["cpu", "cuda", "ascend"])
def test_what_adapters_ask_for_is_known(backend: str) -> None:
    assert planned(backend).arms
    assert planned(backend, variants=("base", "mtp", "deployed")).arms


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"engine": {"enforce_eagr": True}}, "enforce_eager"),
        ({"vary": [parse_axis("num_speculative_token=0,1")]}, "num_speculative_tokens"),
        ({"vary": [parse_axis("max_num_seq=1,2")]}, "max_num_seqs"),
        ({"vary": [parse_axis("compilation_config.cudagraph_mod=NONE")]}, "compilation_config.cudagraph_mode"),
        ({"named_variants": {"x": Variant("x", engine={"blok_size": 16})}, "variants": ("base", "x")}, "block_size"),
        ({"engine": {"seqs": 4}}, "max_num_seqs"),
        ({"engine": {"num_speculative_tokens": 4}}, "-k"),
    ],
)
def test_a_name_that_no_release_has_is_refused_with_the_one_meant(fields: dict[str, Any], meant: str) -> None:
    said, hint = refused(**fields)
    assert said.startswith("cpu/")
    assert f"did you mean {meant}?" in said
    assert "parity run --plan" in hint


def test_a_key_of_additional_config_is_looked_up_where_vllm_ascend_reads_it() -> None:
    engine = {"additional_config": {"weight_prefetch_confg": {}}}
    assert planned("cuda", engine=engine).arms
    assert "did you mean additional_config.weight_prefetch_config?" in refused(backend="ascend", engine=engine)[0]


def test_an_argument_that_only_some_releases_have_passes() -> None:
    assert planned("cuda", engine={"swap_space": 4}).arms  # gone after 0.17.1


def test_drafts_that_no_request_has_room_for() -> None:
    said, hint = refused(num_speculative_tokens=2000)
    assert "cpu/mtp: 2000 draft tokens do not fit" in said
    assert "would take 2001 tokens" in said
    assert "-k 3" in hint


@pytest.fixture
def no_layers(tmp_path: Path) -> Path:
    """The shipped checkpoint with an index that lists no prediction layer."""
    assert TINY is not None
    where = tmp_path / "plain"
    shutil.copytree(TINY, where)
    index = {"weight_map": {"model.embed_tokens.weight": "model.safetensors"}}
    (where / "model.safetensors.index.json").write_text(json.dumps(index))
    return where


def test_a_checkpoint_without_layers_cannot_speculate(no_layers: Path) -> None:
    said, hint = refused(model=no_layers)
    assert said == "cpu/mtp: the checkpoint plain has no prediction layers (MTP)"
    assert "--variants base" in hint
    assert planned(model=no_layers, variants=("base",), vary=[parse_axis("seed=0,1")]).arms


def test_versions_that_are_older_than_the_worker() -> None:
    with pytest.raises(ParityError, match=r"vLLM 0\.1 is older than any that parity runs") as caught:
        load_backend("cpu@0.1")
    assert "0.11.0" in str(caught.value.hint)
    assert load_backend("cpu@0.29.0").name == "cpu@0.29.0"
    assert load_backend("cpu@9.9").name == "cpu@9.9"  # newer than this parity, perhaps: the index knows
