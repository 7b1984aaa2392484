"""What keeps a run from saying PASS, and what a reader of its verdict must know: one function for each."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from parity.comparator.classes import of_class
from parity.comparator.detect import stops
from parity.comparator.detect.pairs import HIDDEN_CHOICES, Judged
from parity.comparator.inputs import plans, servers
from parity.comparator.inputs.finish_reasons import BROKEN_OFF
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.settings import unlike_production
from parity.comparator.reference.gaps import TokenGaps
from parity.comparator.reference.references import References
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import Remarks, note, reason
from parity.messages import Message, message
from parity.records import Capture, Key, words
from parity.records.next_steps import NextStep, Step

LONGER_LISTS = 20
"""Top tokens at each place that are asked for where lists hold the chosen one alone: as many as vLLM gives."""

MOST_LISTED = 1_000
"""Top tokens at each place that are asked for at most."""

_LOOKED_AT = 64
"""Scores that show how many tokens all of them list."""

FLAT = 0.2
"""Share of flat positions from which a checkpoint's distributions leave little power."""


def pinned(inputs: Inputs) -> tuple[Message, ...]:
    """What a PASS of pinned arms says nothing about: how production usually runs the engine."""
    left = unlike_production(inputs.candidate.header)
    if not left:
        return ()
    listed = [f"{name}={json.dumps(value)}" for name, value in left.items()]
    return (
        message(
            "conclude.pinned",
            "this says nothing about production as vLLM runs it by itself, with {settings}: `--variants base,deployed` "
            "or `--like 'vllm serve …'` does",
            settings=listed,
        ),
    )


def different_questions(differences: Sequence[Message]) -> Remarks:
    """Arms that were not asked the same."""
    return plans.as_remarks(differences)


def nothing_compared(inputs: Inputs, pairs: Pairs) -> Remarks:
    """Captures without a completion, or without a token, in common."""
    if not pairs.keys and inputs.remarks.reasons and inputs.given[0].in_common_with(inputs.given[1]):
        return Remarks()  # it is said why those that both have were left out
    if not pairs.keys:
        return reason(
            message("conclude.no_pairs", "no completion is in both captures: nothing was compared"),
            Step.SAME_QUESTIONS,
            Step.AGAIN,
        )
    if pairs.aborted == len(pairs.keys) and not pairs.candidate_tokens.total:
        return reason(
            message(
                "conclude.all_aborted", "every completion was aborted before its first token: nothing was compared"
            ),
            Step.AGAIN,
        )
    if not any(len(a.token_ids) and len(b.token_ids) for a, b in zip(pairs.baseline, pairs.candidate, strict=True)):
        return reason(
            message("conclude.no_tokens", "no completion has a token in both arms: nothing was compared"),
            Step.AGAIN,
        )
    return Remarks()


def cut_off(inputs: Inputs, pairs: Pairs) -> Remarks:
    """Completions that are a beginning only."""
    count = pairs.aborted
    notes = note(
        message(
            "conclude.aborted",
            "{count} completion was aborted while it ran: compared as far as it goes",
            plural="{count} completions were aborted while they ran: compared as far as they go",
            count=count,
        )
    )
    some = BROKEN_OFF & inputs.baseline.finish_reasons and BROKEN_OFF & inputs.candidate.finish_reasons
    broken = [
        b.key
        for a, b in (zip(pairs.baseline, pairs.candidate, strict=True) if some else ())
        if b.finish_reason in BROKEN_OFF and a.finish_reason in BROKEN_OFF and not b.aborted
    ]
    reasons = Remarks()
    if broken:
        reasons = reason(
            message(
                "conclude.broken_off",
                "{count} completion was broken off in both arms ({first}): nothing says how it goes on",
                plural="{count} completions were broken off in both arms (first: {first}): nothing says how they go on",
                count=len(broken),
                first=str(broken[0]),
            ),
            Step.AGAIN,
        )
    return reasons + notes if count else reasons


def ends_unseen(inputs: Inputs, pairs: Pairs, judged: Judged) -> Remarks:
    """Ends that nothing shows: a server that leaves out the token at which it stops."""
    if not inputs.candidate_drops_eos:
        return Remarks()
    ends = stops.stop_rules(inputs.candidate.header, inputs.baseline).terminators
    number = sum(
        b.finish_reason == "stop" and b.stop_reason is None and not np.isin(b.token_ids[-1:], list(ends)).any()
        for row, b in enumerate(pairs.candidate)
        if not pairs.identical[row] and judged.classes.get(pairs.keys[row]) != "corrupt"
    )
    if not number:
        return Remarks()
    return Remarks(
        limits=(
            message(
                "conclude.ends_unseen",
                "{arm} leaves out the token at which it stops: whether {number} completion that parts from the "
                "baseline's should have ended where it did was not judged",
                plural="{arm} leaves out the token at which it stops: whether {number} completions that part from the "
                "baseline's should have ended where they did was not judged",
                count=number,
                number=number,
                arm=inputs.candidate.header.arm,
            ),
        )
    )


def shaped(pairs: Pairs, judged: Judged, references: References) -> Remarks:
    """Logits changed by the request, which neither scores nor logprobs show, where tokens are left open for it."""
    left, masked = set[str](), set[str]()
    for row in np.flatnonzero(~(pairs.identical & pairs.same_prompt)).tolist() if references.lookup.shaped_by else ():
        shaping = references.lookup.shaping(pairs.candidate[row])
        gaps = judged.gaps.get(pairs.keys[row])
        if not shaping.hidden or (gaps is not None and not _is_any_open(gaps, int(pairs.parts_at[row]))):
            continue
        left.update(shaping.unknown if gaps is not None else shaping.hidden)
        masked.update(shaping.masked if gaps is not None else ())
    names = tuple(sorted(left | masked))
    if not names:
        return Remarks()
    if not left:
        said = message(
            "conclude.masked_in_part",
            "{parameters} took tokens away, and at some places nothing says which: the scores end above the chosen "
            "token, or engines read a grammar differently there",
            parameters=names,
        )
        return reason(said, *_longer_lists(said, references), *_unshaped(said, names, judged))
    said = message(
        "conclude.shaped",
        "the engines chose from logits that {parameters} changed, which scores and logprobs do not show: only "
        "tokens that were the best even so are judged",
        parameters=names,
    )
    return reason(said, *_unshaped(said, names, judged))


def _is_any_open(gaps: TokenGaps, parts_at: int) -> bool:
    """Is a token from the parting on open?"""
    return bool(np.isnan(gaps.gap[max(0, parts_at) :]).any())


def _longer_lists(said: Message, references: References) -> list[NextStep]:
    """Scores that list as many tokens as can be asked for, where they list fewer."""
    some = islice(references.lookup.scores.values(), _LOOKED_AT)
    listed = max((top.ids.shape[1] - 1 for top in some), default=0)
    return [NextStep(Step.SCORE_TOP, said.id, MOST_LISTED)] if 0 < listed < MOST_LISTED else []


def undecided(pairs: Pairs, judged: Judged, references: References, vocab_size: int | None) -> Remarks:
    """Tokens of which the lists do not say enough, under penalties, to tell how far below the best they lie."""
    tokens = beyond = 0
    widest, wanted = 0.0, 0.0
    for row in np.flatnonzero(~pairs.identical).tolist() if references.lookup.penalises else ():
        key = pairs.keys[row]
        gaps = judged.gaps.get(key)
        if gaps is None or gaps.wanted is None or judged.classes.get(key) == "corrupt":
            continue
        after = slice(int(pairs.parts_at[row]), None)
        left = gaps.undecided(references.tolerance)[after]
        tokens += len(left)
        if left.any():
            beyond += int(left.sum())
            widest = max(widest, float(gaps.most[after][left].max()))
            short = gaps.wanted[after][left]
            wanted = max(wanted, float(np.nan_to_num(short, nan=0.0).max()))
    if not beyond:
        return Remarks()
    wanted = min(wanted, vocab_size or wanted)
    said = message(
        "conclude.undecided",
        "{count} of {tokens} tokens after a divergence may lie up to {widest:.2f} nats below the best that the "
        "penalties leave, though nothing says so: {ask}",
        count=beyond,
        tokens=tokens,
        widest=widest,
        ask=_more_of(wanted),
    )
    if beyond <= FLAT * tokens:
        return note(said)
    step = NextStep(Step.SCORE_TOP, said.id, int(min(wanted, MOST_LISTED))) if wanted else Step.SCORE
    return reason(said, step)


def _more_of(wanted: float) -> Message:
    """What would tell."""
    if wanted > MOST_LISTED:
        return message(
            "conclude.lists_far_too_short",
            "the lists are far too short, and `--score-top {most}` may not make them long enough",
            most=MOST_LISTED,
        )
    if wanted:
        return message(
            "conclude.lists_too_short",
            "the lists are too short, `--score-top {wanted}` makes them long enough",
            wanted=int(wanted),
        )
    return message(
        "conclude.logits_unknown",
        "a repetition penalty needs the logits, and the scores do not record `logsumexp`, which makes logits of "
        "logprobs",
    )


def unjudged(inputs: Inputs, pairs: Pairs, judged: Judged, references: References, number: int) -> Remarks:
    """Completions of the candidate that differ and that nothing judges; `number` as in the statistics."""
    arm = inputs.candidate
    drawn = set(judged.baseline_drawn) | set(judged.baseline_logprobs)
    at_fault = drawn | set(judged.contradicted) | set(judged.baseline_ends) | set(judged.broken.baseline)
    left = number - sum(judged.classes.get(key) == "unjudged" for key in at_fault)
    if not left:
        return Remarks()
    if references.against_baseline:
        why = message(
            "conclude.unjudged_without_scores",
            "{count} completion differs, and without these scores nothing says whether that is noise",
            plural="{count} completions differ, and without these scores nothing says whether that is noise",
            count=left,
        )
        return reason(why, Step.REFERENCE)
    said = message(
        "conclude.unjudged",
        "{count} completion differs and nothing says whether that is noise: score it (`parity run --score all`) or "
        "capture with --logprobs{suspects}",
        plural="{count} completions differ and nothing says whether that is noise: score them "
        "(`parity run --score all`) or capture with --logprobs{suspects}",
        count=left,
        suspects=_suspicion(judged),
    )
    open_ = of_class(judged.classes, "unjudged")
    rules = _without_rules(said, judged, open_, pairs, references)
    if not rules and (listed := _listed(arm, open_, pairs, references)):
        return _nothing_allowed_listed(left, listed, judged)
    if rules and references.lookup:
        hidden = message(
            "conclude.unjudged_by_rules",
            "{count} completion differs where the request changed the logits, and the scores do not say whether that "
            "is noise{suspects}",
            plural="{count} completions differ where their requests changed the logits, and the scores do not say "
            "whether that is noise{suspects}",
            count=left,
            suspects=_suspicion(judged),
        )
        return reason(hidden, *(replace(one, settles=hidden.id) for one in rules))
    if servers.gives_no_scores(inputs.baseline.header):
        said = message(
            "conclude.unjudged_server",
            "{count} completion differs and nothing says whether that is noise: {arm} gives no scores, so another "
            "engine must judge it (`--arbiter transformers`){suspects}",
            plural="{count} completions differ and nothing says whether that is noise: {arm} gives no scores, so "
            "another engine must judge them (`--arbiter transformers`){suspects}",
            count=left,
            arm=inputs.baseline.header.arm,
            suspects=_suspicion(judged),
        )
        rules = [replace(one, settles=said.id) for one in rules]
        return reason(said, *rules, Step.ARBITER, Step.REFERENCE, Step.LOGPROBS)
    if HIDDEN_CHOICES in judged.notes:  # more of such logprobs decide nothing
        said = message(
            "conclude.unjudged_hidden",
            "{count} completion differs and nothing says whether that is noise, its logprobs neither: score it "
            "(`parity run --score all`){suspects}",
            plural="{count} completions differ and nothing says whether that is noise, their logprobs neither: score "
            "them (`parity run --score all`){suspects}",
            count=left,
            suspects=_suspicion(judged),
        )
        return reason(said, *(replace(one, settles=said.id) for one in rules), Step.SCORE, Step.ARBITER, Step.REFERENCE)
    return reason(said, *rules, Step.SCORE, Step.ARBITER, Step.REFERENCE, Step.LOGPROBS)


def _listed(arm: Capture, keys: Container[Key], pairs: Pairs, references: References) -> int:
    """Tokens that the scores list at a place beside the chosen one, where all these completions are scored and may have
    a few tokens only; else 0."""
    most = 0
    for row, key in enumerate(pairs.keys):
        if key not in keys:
            continue
        one = pairs.candidate[row]
        top = references.lookup.score(arm.header.arm, one)
        if top is None or len(top) != len(one.token_ids) or not arm.sampling_of(one).get("allowed_token_ids"):
            return 0
        most = max(most, top.ids.shape[1] - 1)
    return most


def _nothing_allowed_listed(count: int, listed: int, judged: Judged) -> Remarks:
    """Scores whose lists say nothing: what a request allows stands in none of them."""
    said = message(
        "conclude.unjudged_lists",
        "{count} completion differs and its scores do not say whether that is noise: they list {listed} of the "
        "likeliest tokens, and none that the request allows{suspects}",
        plural="{count} completions differ and their scores do not say whether that is noise: they list {listed} of "
        "the likeliest tokens, and none that the requests allow{suspects}",
        count=count,
        listed=listed,
        suspects=_suspicion(judged),
    )
    longer = [NextStep(Step.SCORE_TOP, said.id, MOST_LISTED)] if listed < MOST_LISTED else []
    return reason(said, *longer, Step.REFERENCE)


def _suspicion(judged: Judged) -> Message | str:
    if not judged.suspects:
        return ""
    key, event = next(iter(judged.suspects.items()))
    return message(
        "conclude.suspects",
        "; {count} of them looks like tokens lost, emitted again or another request's ({first}, {kind} of {tokens} at "
        "{position}), which a near-tie can look like as well",
        plural="; {count} of them look like tokens lost, emitted again or another request's (first: {first}, {kind} of "
        "{tokens} at {position}), which a near-tie can look like as well",
        count=len(judged.suspects),
        first=str(key),
        kind=str(event.kind),
        tokens=words.tokens(event.length),
        position=event.position,
    )


def limited(pairs: Pairs, completions: int, tokens: int, judged: Judged, references: References) -> Remarks:
    """Tokens after near-ties that were not judged (`tokens_not_judged`)."""
    if not completions:
        return Remarks()
    if references.lookup and judged.gaps:
        said = message(
            "conclude.not_covered",
            "the scores do not cover {tokens}",
            tokens=_tokens_of(tokens, completions),
        )
        short = [NextStep(Step.SCORE_TOP, said.id, LONGER_LISTS)] if references.lookup.chosen_alone else []
        short += _without_rules(said, judged, judged.limited, pairs, references)
        return reason(said, *short, Step.SCORE, Step.ARBITER, Step.REFERENCE)
    return note(
        message(
            "conclude.up_to_first_divergence",
            "{count} completion could be judged only up to its first divergent token ({tokens} after it not judged): "
            "there are no scores",
            plural="{count} completions could be judged only up to their first divergent token ({tokens} after it not "
            "judged): there are no scores",
            count=completions,
            tokens=words.tokens(tokens),
        )
    )


def unread_texts(inputs: Inputs, pairs: Pairs) -> Remarks:
    """Texts that nothing was compared with: of other tokens than the baseline's, and without a tokenizer."""
    if inputs.tokenizers.render is not None or not inputs.candidate.has_texts:
        return Remarks()
    read = pairs.identical & inputs.baseline.has_texts
    count = int((pairs.same_prompt & ~read).sum())
    if not count:
        return Remarks()
    said = message(
        "conclude.unread_texts",
        "whether the text is that of the tokens is not known in {count} completion: that needs the checkpoint's "
        "tokenizer (`parity compare --model DIRECTORY`)",
        plural="whether the text is that of the tokens is not known in {count} completions: that needs the "
        "checkpoint's tokenizer (`parity compare --model DIRECTORY`)",
        count=count,
    )
    return Remarks(limits=(said,))


def _without_rules(
    said: Message, judged: Judged, keys: Container[Key], pairs: Pairs, references: References
) -> list[NextStep]:
    """What settles it where all these completions were chosen from logits that no score shows: more scores do not."""
    left = [row for row, key in enumerate(pairs.keys) if key in keys] if references.lookup.shaped_by else []
    each = [references.lookup.shaping(pairs.candidate[row]) for row in left]
    if not each or not all(shaping.hidden for shaping in each):
        return []
    longer = [] if any(shaping.unknown for shaping in each) else _longer_lists(said, references)
    return longer + _unshaped(said, references.lookup.shaped_by, judged)


def _unshaped(said: Message, names: tuple[str, ...], judged: Judged) -> list[NextStep]:
    """Where unread words are all that hides the logits, a tokenizer reads them; else it takes a run without."""
    read = [NextStep(Step.TOKENIZER, said.id)] if names == ("bad_words",) and judged.broken.unread_words else []
    return [*read, NextStep(Step.UNSHAPED, said.id, names=names)]


def _tokens_of(tokens: int, completions: int) -> Message:
    return message(
        "conclude.tokens_of",
        "{tokens} of {completions}",
        tokens=words.tokens(tokens),
        completions=words.completions(completions),
    )
