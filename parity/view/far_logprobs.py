"""Tokens whose own logprob lies far off the score: where in a run its numerics are wrong.

A finding about the numerics of a run as a whole names no token. Rounding is everywhere; what a step got wrong is in its
own tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from parity.comparator.reference.residuals import chosen_logprobs
from parity.records import Capture, Key, ScoreKey, Scores

FAR: Final = 0.1
"""Nats, at least."""

USUAL: Final = 0.995
"""Of the baseline's own tokens, as many lie nearer: a model with experts at near-ties moves farther by itself."""


class Far(NamedTuple):
    """`nats`: how far off a token must be; `places`: the positions of those that are, by completion."""

    nats: float
    places: Mapping[Key, tuple[int, ...]]


def far_logprobs(candidate: Capture, baseline: Capture, scores: Scores) -> Far:
    """Tokens of the candidate that lie farther off their scores than next to all of the baseline's."""
    usual = [np.abs(found) for _, found in _residuals(baseline, scores)]
    known = np.concatenate(usual) if usual else np.empty(0)
    known = known[~np.isnan(known)]
    nats = max(FAR, float(np.quantile(known, USUAL))) if len(known) else FAR
    with np.errstate(invalid="ignore"):
        found = {key: np.flatnonzero(np.abs(one) > nats).tolist() for key, one in _residuals(candidate, scores)}
    return Far(nats, {key: tuple(places) for key, places in found.items() if places})


def _residuals(capture: Capture, scores: Scores) -> Iterator[tuple[Key, npt.NDArray[np.float64]]]:
    """Own logprob less the score of each token, nats; NaN where one of them is not known."""
    for key, one in capture.completions.items():
        scored = scores.get(ScoreKey(capture.header.arm, *key))
        if scored is None or len(scored) != len(one.token_ids):
            continue
        yield key, chosen_logprobs([one]) - chosen_logprobs([replace(one, logprobs=scored)])
