"""Traces of steps that begin with the step of the prompt, which proposes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from captures import capture, completion

from parity.comparator import compare
from parity.comparator.inputs.traces import without_prompt_steps
from parity.records import Capture, Kind, ScoreKey, Scores, SpecTrace, TopLogprobs

LENGTH, ROWS, DRAFTS = 40, 40, 2


def arm(name: str, seed: int, *, prompt_step: bool = False, unchecked: float = 0.0) -> tuple[Capture, Scores]:
    """Drawn with drafts of the best token, each accepted at its probability; `unchecked`: a share of them at once.
    `prompt_step`: a trace has one step more, for the prompt."""
    rng = np.random.default_rng(seed)
    model = np.sort(np.random.default_rng(1).dirichlet(np.full(6, 0.7), (ROWS, LENGTH)))[:, :, ::-1]
    ids = 100 + 6 * np.arange(LENGTH)[:, None] + np.arange(6)
    rows, scores = [], {}
    for number, each in enumerate(model):
        ranks, accepted, left = [rng.choice(6, p=each[0])], [], 0
        for p in each[1:]:
            if not left:
                accepted.append(0)
                left = DRAFTS + 1
            is_draft = left > 1
            rank = 0 if is_draft and rng.random() < max(p[0], float(rng.random() < unchecked)) else -1
            if rank < 0:
                rank = 1 + rng.choice(5, p=p[1:] / p[1:].sum()) if is_draft else rng.choice(6, p=p)
                left = 0
            else:
                accepted[-1] += 1
                left -= 1
            ranks.append(rank)
        steps = np.array([0, *accepted] if prompt_step else accepted)
        drafted = np.array([0, *[DRAFTS] * len(accepted)] if prompt_step else [DRAFTS] * len(accepted))
        one = completion(ids[np.arange(LENGTH), ranks], f"p{number}", spec=SpecTrace(steps, drafted))
        rows.append(one)
        scores[ScoreKey(name, *one.key)] = TopLogprobs(ids, np.log(each + 1e-12))
    return capture(name, *rows, temperature=1.0, max_tokens=LENGTH), scores


@pytest.mark.parametrize("seed", range(3))
def test_a_trace_that_begins_with_the_prompts_step_accuses_nobody(seed: int) -> None:
    baseline, scores = arm("cpu/base", 10 + seed)
    candidate, more = arm("cpu/mtp", 20 + seed, prompt_step=True)
    result = compare(baseline, candidate, {**scores, **more})
    assert not result.corrupt, [str(one.evidence.why) for one in result.corrupt]
    assert "inputs.prompt_steps" in {one.id for one in result.notes}


@pytest.mark.parametrize("prompt_step", [False, True])
def test_drafts_that_are_accepted_unchecked_are_found_in_either(prompt_step: bool) -> None:
    baseline, scores = arm("cpu/base", 3)
    candidate, more = arm("cpu/mtp", 4, prompt_step=prompt_step, unchecked=0.5)
    found = compare(baseline, candidate, {**scores, **more}).corrupt
    assert Kind.UNJUSTIFIED in {one.kind for one in found}


def test_traces_of_decode_steps_alone_stay_as_they_are() -> None:
    """Also where the first step of all proposed nothing, and those that end inside a step have more tokens."""
    own, _ = arm("cpu/mtp", 5)
    assert without_prompt_steps(own)[0] is own
    late = [
        completion(
            [100 + at for at in range(9)], f"p{n}", spec=SpecTrace(np.array([0, 2, 2, 0]), np.array([0, 2, 2, 2]))
        )
        for n in range(8)
    ]
    plain = capture("cpu/mtp", *late, max_tokens=9)
    assert without_prompt_steps(plain)[0] is plain
