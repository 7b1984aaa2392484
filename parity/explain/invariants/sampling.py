"""The sampler: are its tokens those that the target chose, for the drafts of this row?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.capture.step_table import NOTHING, Ragged, same_lists, spans
from parity.capture.steps import Ints
from parity.explain.invariants.check import Broken, Invariant, unequal, unequal_lists
from parity.explain.ledger import Ledger
from parity.messages import message


def logits_are_the_rows_last(ledger: Ledger) -> Iterator[Broken]:
    found = ledger.numbers("logits_first")
    due = ledger.starts + ledger.numbers("scheduled") - ledger.lists("drafts").counts - 1
    yield from unequal(found, due, found != NOTHING)
    yield from unequal(ledger.numbers("logits_off"), np.zeros(len(ledger), dtype=np.int64))


def the_sampler_has_the_drafts(ledger: Ledger) -> Iterator[Broken]:
    yield from unequal_lists(ledger.lists("sampler_drafts"), ledger.lists("drafts"))


def drafts_and_one_more(ledger: Ledger) -> Iterator[Broken]:
    """Greedy or drawn: drafts from the first on, and one token of the target after them."""
    sampled, drafts = ledger.lists("sampled"), ledger.lists("drafts")
    accepted = np.maximum(sampled.counts - 1, 0)
    counts = np.minimum(accepted, drafts.counts)
    head = Ragged(counts, sampled.values[spans(sampled.starts[:-1], counts)])
    due = Ragged(counts, drafts.values[spans(drafts.starts[:-1], counts)])
    wrong = ~same_lists(head, due) | (accepted > drafts.counts) | (sampled.counts < 1)
    yield Broken(np.flatnonzero(wrong & ledger.emits), drafts, sampled)


def _parted(ledger: Ledger) -> tuple[Ints, Ints]:
    """Plain rows that emit and whose tokens are not those chosen; and the place where they part."""
    sampled, chosen = ledger.lists("sampled"), ledger.lists("chosen")
    rows = np.flatnonzero(~same_lists(sampled, chosen) & ledger.plain & ledger.emits)
    counts = np.minimum(sampled.counts, chosen.counts)[rows]
    a = sampled.values[spans(sampled.starts[:-1][rows], counts)]
    b = chosen.values[spans(chosen.starts[:-1][rows], counts)]
    place = counts.copy()
    at = np.arange(len(a)) - np.repeat(np.cumsum(counts) - counts, counts)
    np.minimum.at(place, np.repeat(np.arange(len(rows)), counts)[a != b], at[a != b])
    return rows, place


def _is_draft(ledger: Ledger, rows: Ints, place: Ints) -> Ints:
    """Whether the token at the place where they part was a draft: kept where it should not, or not kept."""
    sampled, drafts = ledger.lists("sampled"), ledger.lists("drafts")
    inside = (place < sampled.counts[rows]) & (place < drafts.counts[rows])
    token = sampled.values[np.where(inside, sampled.starts[:-1][rows] + place, 0)] if len(sampled.values) else place
    draft = drafts.values[np.where(inside, drafts.starts[:-1][rows] + place, 0)] if len(drafts.values) else ~token
    chosen = ledger.lists("chosen").counts[rows]
    found: Ints = (inside & (token == draft)) | (place >= chosen) | (place >= sampled.counts[rows])
    return found


def tokens_are_the_targets(ledger: Ledger) -> Iterator[Broken]:
    rows, place = _parted(ledger)
    yield Broken(rows[~_is_draft(ledger, rows, place)], ledger.lists("chosen"), ledger.lists("sampled"))


def accepted_drafts_are_the_targets(ledger: Ledger) -> Iterator[Broken]:
    rows, place = _parted(ledger)
    yield Broken(rows[_is_draft(ledger, rows, place)], ledger.lists("chosen"), ledger.lists("sampled"))


def a_rejected_draft_is_not_drawn_again(ledger: Ledger) -> Iterator[Broken]:
    """What is drawn in a rejected draft's place comes from max(p - q, 0), with p the target's probabilities and q the
    drafter's: a draft is rejected only where p < q, so that nothing is left of it (Leviathan, Kalman, Matias 2023).
    Greedy decoding takes another token there by definition; of plain rows `verified` says so already."""
    sampled, drafts = ledger.lists("sampled"), ledger.lists("drafts")
    place = sampled.counts - 1
    rows = np.flatnonzero(ledger.emits & ~ledger.plain & (place >= 0) & (place < drafts.counts))
    drawn, draft = (one.values[one.starts[:-1][rows] + place[rows]] for one in (sampled, drafts))
    yield Broken(rows[(drawn == draft) & (draft >= 0)], drafts, sampled)


SAMPLING = (
    Invariant(
        "logits",
        message("explain.logits", "the logits are those of the row's last tokens"),
        ("logits_first", "logits_off", "scheduled", "drafts"),
        logits_are_the_rows_last,
    ),
    Invariant(
        "sampler_drafts",
        message("explain.sampler_drafts", "the sampler has the drafts that were scheduled"),
        ("sampler_drafts", "drafts"),
        the_sampler_has_the_drafts,
        number=message("explain.number.drafts", "drafts"),
    ),
    Invariant(
        "prefix",
        message("explain.prefix", "emitted tokens are drafts from the first on and one more"),
        ("sampled", "drafts", "handed"),
        drafts_and_one_more,
        number=message("explain.number.tokens", "tokens"),
    ),
    Invariant(
        "chosen",
        message("explain.chosen", "an emitted token is the one that the target chose"),
        ("sampled", "chosen", "drafts", "handed"),
        tokens_are_the_targets,
        number=message("explain.number.tokens", "tokens"),
    ),
    Invariant(
        "verified",
        message("explain.verified", "a draft is accepted exactly where it is what the target chose"),
        ("sampled", "chosen", "drafts", "handed"),
        accepted_drafts_are_the_targets,
        number=message("explain.number.tokens", "tokens"),
    ),
    Invariant(
        "rejected",
        message("explain.drawn_again", "what is drawn in a rejected draft's place is another token"),
        ("sampled", "drafts", "handed"),
        a_rejected_draft_is_not_drawn_again,
        number=message("explain.number.tokens", "tokens"),
        due=message("explain.drawn_again.due", "a last token that is not its draft"),
    ),
)
