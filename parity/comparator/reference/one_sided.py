"""Where the candidate's completions alone are scored: what do their scores say of the baseline's own tokens?

Up to where a pair parts both arms said the same after the same text, so that the score of the one is that of the other;
and where they part, its list says how far below the best the token lies that the baseline chose. Of arms that are alike
neither is rejected there more often than the other, whatever it is that moves their logits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from parity.comparator.reference.gaps import FloatArray, TokenGaps, batches, places_beyond
from parity.comparator.reference.isolated import IN_A_ROW, Isolated, are_single
from parity.comparator.reference.own_logprobs import LIKELY, OwnNoise
from parity.comparator.reference.residuals import chosen_logprobs
from parity.comparator.reference.rivals import Rivals
from parity.comparator.reference.tolerance import DOUBT
from parity.comparator.streams.contexts import context_of
from parity.comparator.streams.pairing import Pairs
from parity.records import Key


class OneSided(Struct, frozen=True):
    """What the baseline's tokens show of themselves in the candidate's scores."""

    isolated: Isolated
    own: OwnNoise
    """How far the baseline's own logprobs of likely tokens lie from these scores."""


def one_sided(pairs: Pairs, gaps: Mapping[Key, TokenGaps], rivals: Rivals, tolerance: float) -> OneSided | None:
    """gaps: of the candidate's completions that differ; rivals: the baseline's tokens where these part; tolerance in
    nats. None where no score says anything of the baseline."""
    said, farthest, shown = set[tuple[bytes, bytes]](), 0.0, 0.0
    own = list[FloatArray]()
    rows = [row for row in np.flatnonzero(~pairs.identical & pairs.same_prompt).tolist() if pairs.keys[row] in gaps]
    parts_at = pairs.parts_at[rows]
    judged, after = int(parts_at.sum()), int((pairs.candidate_tokens.sizes[rows] - parts_at).sum())
    below = rivals.beyond(0.0)
    for batch in batches(parts_at.tolist()):
        some, sizes = [gaps[pairs.keys[row]] for row in rows[batch]], parts_at[batch].tolist()
        common = np.concatenate([one.gap[:size] for one, size in zip(some, sizes, strict=True)])
        shown = max(shown, float(np.fmax.reduce(common, initial=0.0)))  # passes over NaN
        for row, found, at, places in zip(
            rows[batch], some, sizes, places_beyond(common, sizes, tolerance), strict=True
        ):
            a, at_parting = pairs.baseline[row], below.get(pairs.keys[row], 0.0)
            shown = max(shown, at_parting)
            if at_parting > tolerance:
                places = [*places, at]
            if places:
                far = np.array([at_parting if place == at else found.gap.item(place) for place in places])
                if are_single(np.array(places), far, len(a.token_ids)):
                    said.add(context_of(a, places[int(far.argmax())]))
                    farthest = max(farthest, float(far.max()))
            if a.logprobs is not None and at:
                apart, likely = np.abs(chosen_logprobs([a])[:at] - found.chosen[:at]), found.chosen[:at] >= LIKELY
                own.append(np.where(likely, np.nan_to_num(apart, nan=0.0), 0.0))
    if not judged + after:
        return None
    every = np.where(pairs.parts_at < 0, pairs.candidate_tokens.sizes, pairs.parts_at)
    both = int(every[pairs.same_prompt].sum())
    # A token of the candidate is rejected where its own logits moved, or the score's. Of the baseline the first shows
    # in all that both say, the second in what of that is scored.
    exposure = max(1.0 + after / max(1, both), after / max(1, judged))
    beyond = farthest if farthest > DOUBT * tolerance else 0.0  # less is left in doubt anyway
    single = Isolated(len(said), beyond, exposure, of_few=True, in_a_row=IN_A_ROW, shown=shown, tokens=judged)
    return OneSided(single, OwnNoise.of(own))
