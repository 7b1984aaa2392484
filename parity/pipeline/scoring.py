"""Which completions an engine is to teacher-force."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from parity.plan import Plan
from parity.records import Capture, Completion, Key, TokenIds
from parity.run import ScoreItem


class Items:
    """Completions to be scored. Equal token streams are held once, whatever arms they are of, and none of the captures
    that they came from."""

    def __init__(self, plan: Plan) -> None:
        self.items: list[ScoreItem] = []
        self._with_images = {request.id for request in plan.requests if request.has_images}
        self._streams: dict[bytes, TokenIds] = {}

    def add(self, arm: str, completion: Completion) -> None:
        """Take it in, unless there is nothing to score: no tokens, or an answer about images, which without its images
        would be judged by another question."""
        if len(completion.token_ids) and completion.key.request not in self._with_images:
            prompt, tokens = self._shared(completion.prompt_token_ids), self._shared(completion.token_ids)
            self.items.append(ScoreItem(arm, *completion.key, prompt, tokens))

    def _shared(self, ids: TokenIds) -> TokenIds:
        raw = ids.tobytes()
        held = self._streams.get(raw)
        if held is None:
            held = self._streams[raw] = np.frombuffer(raw, dtype=np.int64)
        return held


def score_items(plan: Plan, captures: Mapping[str, Capture]) -> list[ScoreItem]:
    """What the baseline is to teacher-force: nothing, completions that differ between the arms, or all of them (the
    noise floor).

    Of those that differ the baseline's own as well: else a token that its scores reject may be its habit, in both arms.
    Not where any are drawn: of all draws those that are alike would be missing.
    """
    if plan.score.mode == "none":
        return []
    chosen, everything = Items(plan), plan.score.mode == "all"
    baseline = captures[plan.baseline]
    both = everything or all(plan.sampling_of(request).temperature == 0 for request in plan.requests)
    apart: set[Key] = set()
    for arm in plan.candidates:
        for completion in captures.get(arm.name, ()):
            if everything or not _same_tokens(baseline.completions.get(completion.key), completion):
                chosen.add(arm.name, completion)
                apart.add(completion.key)
    for completion in baseline if both else ():
        if everything or completion.key in apart:
            chosen.add(plan.baseline, completion)
    return chosen.items


def disputed(plan: Plan, captures: Mapping[str, Capture]) -> list[ScoreItem]:
    """Both sides of every pair that differs, each baseline completion once."""
    chosen = Items(plan)
    baseline = captures[plan.baseline]
    known: set[Key] = set()
    for arm in plan.candidates:
        for completion in captures.get(arm.name, ()):
            other = baseline.completions.get(completion.key)
            if other is None or _same_tokens(other, completion):
                continue
            chosen.add(arm.name, completion)
            if other.key not in known:
                known.add(other.key)
                chosen.add(plan.baseline, other)
    return chosen.items


def every(plan: Plan, captures: Mapping[str, Capture]) -> list[ScoreItem]:
    """All completions of the baseline and of its candidates."""
    chosen = Items(plan)
    for arm in (plan.baseline, *(one.name for one in plan.candidates)):
        for completion in captures.get(arm, ()):
            chosen.add(arm, completion)
    return chosen.items


def _same_tokens(one: Completion | None, other: Completion) -> bool:
    return one is not None and np.array_equal(one.token_ids, other.token_ids)
