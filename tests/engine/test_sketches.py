"""Sketches of a real engine: its decode steps beside its own prefill of the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_plan import BaseArm
from parity_faults import environment
from parity_faults.launch import packed
from plans import plan_of

from parity.capture import read_capture
from parity.capture.sketches import read_sketches
from parity.explain.aligned import align
from parity.explain.located import locate, locate_drafter
from parity.explain.profile import ROUNDING
from parity.pipeline.controls import prompt_digest, read_planted
from parity.plan import load_suite
from parity.plan.requests import tokenise
from parity.run import Backend, load_backend, run_arm

pytestmark = pytest.mark.engine


def test_every_token_is_the_same_token_and_differs_by_rounding_alone(base_arm: BaseArm) -> None:
    capture = read_capture(base_arm.capture)
    assert capture.header.extra["sketches"] == {"schema": "parity.sketches/2", "level": "parts"}
    ours = read_sketches(base_arm.directory / "cpu-base.sketches")
    theirs = read_sketches(base_arm.directory / "scores.sketches")
    aligned = align(capture, ours, theirs)
    assert not aligned.unpaired
    # The last token of a completion never goes in.
    assert len(aligned) == sum(len(one.prompt_token_ids) + len(one.token_ids) - 1 for one in capture)
    names = [one.name for one in aligned.modules]
    layers = [name for name in names if name.endswith(".mlp")]
    assert len(layers) == 4
    assert names[0] == "model.layers.0.input_layernorm"
    assert names[-2:] == ["output", "logits"]
    assert (aligned.distance[:, 0] == 0).all()  # nothing has been computed yet that could round
    middle = np.nanmedian(aligned.distance[:, 1:-1], axis=0)
    assert ((middle > 0) & (middle < 0.02)).all()
    assert aligned.plain.all()
    sampled = aligned.position >= np.repeat(aligned.prompt_tokens, np.bincount(aligned.completion)) - 1
    chosen = aligned.best >= 0
    assert chosen[sampled].mean() > 0.9  # of equal logits none is the largest
    assert (aligned.best == aligned.follows)[sampled & chosen].all()
    assert not locate(aligned).located


def test_transformers_in_float32_is_the_arbiter_of_every_module(
    base_arm: BaseArm, base_plan: dict[str, Any], tmp_path: Path
) -> None:
    """The engine's modules have the arbiter's names, start from the same bits, and are a few roundings away from it."""
    arbiter = load_backend("transformers")
    engine = arbiter.engine_defaults("base", num_speculative_tokens=1)
    arm = {"name": "transformers/arbiter", "backend": "transformers", "variant": "arbiter", "engine": engine, "env": {}}
    plan = plan_of({**base_plan, "arms": [*base_plan["arms"], arm], "sketch": "parts"})
    own = [one for one in base_arm.asked if one.arm == "cpu/base"]
    with run_arm(plan, arm["name"], tmp_path / "arm.jsonl", tmp_path / "log") as session:
        session.score(own, tmp_path / "arbiter.jsonl", top=5)
    aligned = align(
        read_capture(base_arm.capture),
        read_sketches(base_arm.directory / "cpu-base.sketches"),
        read_sketches(tmp_path / "arbiter.sketches"),
    )
    assert not aligned.unpaired
    of_engine = read_sketches(base_arm.directory / "cpu-base.sketches")[0].modules
    assert {one.name for one in aligned.modules} == {one.name for one in of_engine if one.order >= 0}
    middle = np.nanmedian(aligned.distance, axis=0)
    assert ((middle > ROUNDING["bfloat16"] / 2) & (middle < 0.03)).all()


def test_a_fault_of_the_drafter_is_located_in_a_run_with_long_prompts(
    cpu: Backend, base_plan: dict[str, Any], tmp_path: Path
) -> None:
    """Most tokens are prompts', which both sides compute alike, and some prompts are computed in chunks."""
    model = Path(base_plan["model"]["path"])
    every = tokenise(load_suite("mixed"), model)
    long = [one for one in every if 100 < len(one.prompt_token_ids) < 230]
    short = [one for one in every if 10 < len(one.prompt_token_ids) < 50]
    requests = [{"id": one.id, "prompt_token_ids": list(one.prompt_token_ids)} for one in (*long, *short)]
    (arm,) = (one for one in base_plan["arms"] if one["name"] == "cpu/mtp")
    planted = {**environment("drafter_input_off", rate=0.3), **packed()}
    arm = {**arm, "engine": {**arm["engine"], "max_num_batched_tokens": 512}, "env": {**arm["env"], **planted}}
    asked = {"requests": requests, "sampling": {**base_plan["sampling"], "max_tokens": 24}, "sketch": "parts"}
    plan = plan_of({**base_plan, **asked, "arms": [base_plan["arms"][0], arm]})
    with run_arm(plan, "cpu/mtp", tmp_path / "mtp.jsonl", tmp_path / "log") as session:
        session.generate()
    capture = read_capture(tmp_path / "mtp.jsonl")
    steps, again = read_sketches(tmp_path / "mtp.sketches")
    assert (steps.header.prefill, again.header.prefill) == (False, True)
    aligned = align(capture, [steps], [again], drafter=True)
    in_chunks = {key.request for key in aligned.unpaired}
    assert set(aligned.unpaired.values()) == {"other tokens"}  # the reference is computed without chunks
    assert 1 <= len(in_chunks) < len(requests) / 4
    hit = read_planted(tmp_path / "log").prompts
    due = {one.key.request for one in capture if prompt_digest(one.prompt_token_ids.tolist()) in hit} - in_chunks
    assert len(due) > 2
    found = locate_drafter(aligned)
    assert {one.key.request for one in found.located} <= due
    assert len(found.located) > len(due) / 2  # after a router's flip a small fault is not seen
    assert {one.module for one in found.located} == {"drafter.model.fc"}
