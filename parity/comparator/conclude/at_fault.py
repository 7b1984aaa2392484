"""Where something other than the candidate is at fault: the baseline, the engine in both arms, a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from parity.comparator.detect.pairs import Judged
from parity.comparator.detect.rules import Broken
from parity.comparator.grammar import automaton
from parity.comparator.reference.floor import NOT_NOISE
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.reference.references import References
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import Remarks, reason
from parity.messages import Message, message
from parity.records import Key, words
from parity.records.evidence import RunEvidence
from parity.records.next_steps import Step


def faulty_baseline(judged: Judged, references: References) -> Remarks:
    """Where it is the baseline that is wrong, so that nothing follows for the candidate."""
    found = Remarks()
    if judged.contradicted:
        found += reason(
            message(
                "conclude.baseline_rejected",
                "the scores reject the baseline's own token in {completions}: the baseline is at fault there, or the "
                "scores are not of these arms",
                completions=words.named(judged.contradicted),
            ),
            Step.ARBITER,
            Step.SWAP,
            Step.REFERENCE,
        )
    ends = {key: why for key, why in judged.baseline_ends.items() if key not in judged.broken.baseline}
    if ends:
        found += reason(
            message(
                "conclude.baseline_ends",
                "the baseline itself ends where it should not in {completions}",
                completions=words.explained(ends),
            ),
            Step.SWAP,
            Step.REFERENCE,
        )
    if judged.baseline_drawn:
        found += reason(
            message(
                "conclude.baseline_drawn",
                "the baseline itself is drawn otherwise than asked in {completions}",
                completions=words.explained(judged.baseline_drawn),
            ),
            Step.SWAP,
            Step.REFERENCE,
        )
    if judged.baseline_logprobs:
        found += reason(
            message(
                "conclude.baseline_logprobs",
                "the baseline's own logprobs are not those of its tokens in {completions}: it chose them by something "
                "else there, as where two rows were swapped, or reports them wrongly",
                completions=words.explained(judged.baseline_logprobs),
            ),
            Step.SWAP,
            Step.REFERENCE,
        )
    floor = references.own.floor
    if floor is not None and floor.rejected:
        wrong = [key for key, (gaps, _) in references.own.scored.items() if bool((gaps.gap > NOT_NOISE).any())]
        found += reason(
            message(
                "conclude.baseline_beyond_noise",
                "{count} of the baseline's own {tokens} lies more than {limit:g} nats below the best when scored "
                "({first}): the baseline is faulty itself, or the scores are not its own",
                plural="{count} of the baseline's own {tokens} lie more than {limit:g} nats below the best when scored "
                "(first: {first}): the baseline is faulty itself, or the scores are not its own",
                count=floor.rejected,
                tokens=words.tokens(floor.tokens),
                limit=NOT_NOISE,
                first=str(wrong[0]),
            ),
            Step.SWAP,
            Step.REFERENCE,
        )
    return found


def both_beyond_noise(pairs: Pairs, judged: Judged, references: References, gaps: Mapping[Key, TokenGaps]) -> Remarks:
    """What both arms say before they part, by scores of the candidate alone: these are of the baseline's tokens as
    well. gaps: of the candidate's completions that are scored."""
    known = references.own.scored.keys() | set(judged.contradicted)
    asked = np.flatnonzero(pairs.same_prompt & ~pairs.random).tolist()
    rows = [row for row in asked if pairs.keys[row] in gaps and pairs.keys[row] not in known]
    tokens, rejected, first = 0, 0, None
    for row in rows:
        until = int(pairs.parts_at[row])
        said = gaps[pairs.keys[row]].gap[: until if until >= 0 else None]
        tokens += int(np.isfinite(said).sum())
        beyond = int((said > NOT_NOISE).sum())
        first = pairs.keys[row] if beyond and first is None else first
        rejected += beyond
    if not rejected:
        return Remarks()
    said_by_both = message(
        "conclude.both_beyond_noise",
        "{count} of the {tokens} that both arms say alike lies more than {limit:g} nats below the best by the "
        "candidate's scores ({first}): both arms are faulty there, or the scores are not theirs",
        plural="{count} of the {tokens} that both arms say alike lie more than {limit:g} nats below the best by the "
        "candidate's scores (first: {first}): both arms are faulty there, or the scores are not theirs",
        count=rejected,
        tokens=words.tokens(tokens),
        limit=NOT_NOISE,
        first=str(first),
    )
    return reason(said_by_both, Step.ARBITER, Step.REFERENCE)


def baseline_penalties(found: RunEvidence | None) -> Remarks:
    """A baseline that did not keep to its penalties."""
    if found is None:
        return Remarks()
    said = message(
        "conclude.baseline_penalties",
        "the baseline itself does not keep to the penalties of its requests ({count} of {number} choices that tell say "
        "so, p = {p_value:.2g}): it is at fault itself",
        count=found.why.parameters["count"],
        number=found.why.parameters["number"],
        p_value=found.p_value,
    )
    return reason(said, Step.SWAP, Step.REFERENCE)


_BASELINE_BROKE = message(
    "conclude.baseline_broke",
    "the baseline itself breaks a rule of its request in {completions}: the candidate is not accused of that",
)
_BOTH_BROKE = message(
    "conclude.both_broke",
    "the engine breaks a rule of its request in both arms, in {completions}: a fault, and none that sets "
    "the candidate apart",
)
_UNHEEDED = message(
    "conclude.unheeded",
    "the server does not keep to a rule of its requests, in {completions}: it may not know the parameter",
)


def broken_rules(judged: Judged) -> Remarks:
    """Rules of the requests that the baseline broke, or both arms, and what could not be checked of them."""
    broken = judged.broken
    found = broken.habits + Remarks(limits=tuple(_unchecked(broken)))
    for those, said, steps in (
        (broken.baseline, _BASELINE_BROKE, (Step.SWAP, Step.REFERENCE)),
        (broken.both, _BOTH_BROKE, (Step.REFERENCE,)),
        (broken.unheeded, _UNHEEDED, (Step.REFERENCE,)),
    ):
        if those:
            found += reason(replace(said, parameters={"completions": words.explained(those)}), *steps)
    return found


def _unchecked(broken: Broken) -> Iterator[Message]:
    if broken.unread_words:
        yield message(
            "conclude.unread_words",
            "whether bad_words were kept is not known in {count} completion: that needs the checkpoint's tokenizer "
            "(`parity compare --model DIRECTORY`)",
            plural="whether bad_words were kept is not known in {count} completions: that needs the checkpoint's "
            "tokenizer (`parity compare --model DIRECTORY`)",
            count=broken.unread_words,
        )
    if broken.unread_stops:
        yield message(
            "conclude.unread_stops",
            "whether stop strings were kept is not known in {count} completion: that needs the text, and under "
            "min_tokens the checkpoint's tokenizer as well (`parity compare --model DIRECTORY`)",
            plural="whether stop strings were kept is not known in {count} completions: that needs the text, and under "
            "min_tokens the checkpoint's tokenizer as well (`parity compare --model DIRECTORY`)",
            count=broken.unread_stops,
        )
    if not broken.open_grammars:
        return
    forms = sorted(set(broken.open_grammars))
    if automaton.is_here():
        yield message(
            "conclude.open_grammars",
            "{count} completion under a grammar ({forms}) could not be checked token by token",
            plural="{count} completions under a grammar ({forms}) could not be checked token by token",
            count=len(broken.open_grammars),
            forms=forms,
        )
    else:
        yield message(
            "conclude.grammars_need",
            "{count} completion under a grammar ({forms}) was not checked token by token: that needs llguidance "
            "(`pip install 'parity-mtp[grammars]'`)",
            plural="{count} completions under a grammar ({forms}) were not checked token by token: that needs "
            "llguidance (`pip install 'parity-mtp[grammars]'`)",
            count=len(broken.open_grammars),
            forms=forms,
        )
