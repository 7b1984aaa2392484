"""Sketches of a real engine: its decode steps beside its own prefill of the same tokens."""

from __future__ import annotations

import numpy as np
import pytest
from engine_plan import BaseArm

from parity.capture import read_capture
from parity.capture.sketches import read_sketches
from parity.explain.aligned import align
from parity.explain.located import locate

pytestmark = pytest.mark.engine


def test_every_token_is_the_same_token_and_differs_by_rounding_alone(base_arm: BaseArm) -> None:
    capture = read_capture(base_arm.capture)
    assert capture.header.extra["sketches"] == {"schema": "parity.sketches/1", "level": "parts"}
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
