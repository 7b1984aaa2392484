"""The numbers on the screen are the comparison's, under a repetition penalty too: gap, first divergent token, step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import planted_set
import pytest
import real_run
from driving import Person, drive

from parity.pipeline.analyse import analyse, for_store
from parity.records import ScoreKey, TopLogprobs
from parity.records.steps import PREFILL, steps_of
from parity.tui.format import nats
from parity.tui.screens.finding import FindingScreen

RUN = "20261122-090000-cccc"
KEEPS_GAPS = pytest.mark.parametrize("stored", [True, False], ids=["stored", "stored by an older parity"])


def raw_gaps(score: TopLogprobs, chosen: np.ndarray) -> np.ndarray:
    """Without the penalty: what the screen must not show."""
    own = np.where(score.ids == chosen[:, None], score.values, -np.inf).max(axis=1)
    return np.asarray(np.nanmax(score.values, axis=1) - own)


@KEEPS_GAPS
def test_the_screen_shows_what_was_compared(tmp_path: Path, stored: bool) -> None:
    baseline, _, _ = planted_set.clean("B")
    assert baseline.header.sampling["repetition_penalty"] == 1.2
    case = next(one for one in planted_set.cases("B") if (one.fault, one.where) == ("drop5+regenerated", "mid"))
    completions = {key: real_run.with_trace(one) for key, one in case.candidate.completions.items()}
    candidate = replace(case.candidate, completions=completions)
    comparison = analyse(baseline, candidate, case.scores, tolerance=0.25, model=real_run.MODEL)
    kept = for_store(comparison)
    if not stored:
        kept = replace(kept, gaps={}, baseline_gaps={})
    database = real_run.save(tmp_path, RUN, baseline, [(candidate, kept)], case.scores)

    tokens = completions[case.key].token_ids
    raw = raw_gaps(case.scores[ScoreKey(candidate.header.arm, *case.key)], tokens)
    gaps = comparison.candidate_gaps[case.key]
    differ = np.flatnonzero(np.abs(raw - gaps.gap) > 0.5)
    assert len(differ), "the penalty decides somewhere"
    at = comparison.first_divergence[case.key]
    spec = completions[case.key].spec
    assert spec is not None
    steps = steps_of(spec.accepted)
    places = [0, at, *differ[:3].tolist(), len(steps) - 1]

    async def task(person: Person) -> None:
        await person.sees("cccc")
        await person.press("enter")
        await person.sees(case.key.request)
        await person.press("enter")
        await person.until(lambda: isinstance(person.app.screen, FindingScreen), "the finding")
        screen = person.app.screen
        assert isinstance(screen, FindingScreen)
        await person.until(lambda: screen.view and screen.view.steps, "what the files say")
        assert screen.view is not None
        assert screen.view.key == case.key
        await person.press("full_stop")
        assert max(screen.tokens.position) == at
        for place in places:
            screen.tokens.go(screen.view.alignment.row_of(place))
            await person.settles()
            assert person.row.split()[1].startswith(str(place))
            assert nats(gaps.at(place)) in person.row, place
            number = int(steps.step[place])
            await person.sees("made by the prefill" if number == PREFILL else f"step {number}: 2 of 2 drafts accepted")

    drive(database, task, size=(160, 40))
