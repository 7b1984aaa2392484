"""What keeps a run from saying PASS, and what a reader of its verdict must know: one function for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parity.comparator.detect import stops
from parity.comparator.detect.pairs import Judged
from parity.comparator.detect.rules import Broken
from parity.comparator.grammar import automaton
from parity.comparator.inputs import plans
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.population.noise_floor import as_note
from parity.comparator.reference.floor import NOT_NOISE, Floor
from parity.comparator.reference.references import References
from parity.comparator.stats import Drift, NoiseFloor, Numerics, SamplingStats
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import Remarks
from parity.comparator.types import reason as _reason
from parity.messages import Message, message
from parity.records import DEFAULT_TOLERANCE, Finding, Kind, Severity, words
from parity.records.next_steps import NextStep, Step

LONGER_LISTS = 20
"""Top tokens at each place that are asked for where lists hold the chosen one alone: as many as vLLM gives."""

MOST_LISTED = 1_000
"""Top tokens at each place that are asked for at most."""

FLAT = 0.2
"""Share of flat positions from which a checkpoint's distributions leave little power."""


def different_questions(differences: Sequence[Message]) -> Remarks:
    """Arms that were not asked the same."""
    return plans.as_remarks(differences)


def nothing_compared(pairs: Pairs) -> Remarks:
    """Captures without a completion, or without a token, in common."""
    if not pairs.keys:
        return _reason(
            message("conclude.no_pairs", "no completion is in both captures: nothing was compared"),
            Step.SAME_QUESTIONS,
            Step.AGAIN,
        )
    if pairs.aborted == len(pairs.keys) and not len(pairs.candidate_tokens.flat):
        return _reason(
            message(
                "conclude.all_aborted", "every completion was aborted before its first token: nothing was compared"
            ),
            Step.AGAIN,
        )
    if not any(len(a.token_ids) and len(b.token_ids) for a, b in zip(pairs.baseline, pairs.candidate, strict=True)):
        return _reason(
            message("conclude.no_tokens", "no completion has a token in both arms: nothing was compared"),
            Step.AGAIN,
        )
    return Remarks()


def cut_off(pairs: Pairs) -> Remarks:
    """Completions that are a beginning only."""
    count = pairs.aborted
    notes = _note(
        message(
            "conclude.aborted",
            "{count} completion was aborted while it ran: compared as far as it goes",
            plural="{count} completions were aborted while they ran: compared as far as they go",
            count=count,
        )
    )
    broken = [
        b.key
        for a, b in zip(pairs.baseline, pairs.candidate, strict=True)
        if b.finish_reason in stops.BROKEN_OFF and a.finish_reason in stops.BROKEN_OFF and not b.aborted
    ]
    reasons = Remarks()
    if broken:
        reasons = _reason(
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


def ends_unseen(inputs: Inputs, pairs: Pairs) -> Remarks:
    """Ends that nothing shows: a server that leaves out the token at which it stops."""
    if not inputs.candidate_drops_eos:
        return Remarks()
    ends = stops.stop_rules(inputs.candidate.header, inputs.baseline).terminators
    number = sum(
        b.finish_reason == "stop" and b.stop_reason is None and not np.isin(b.token_ids[-1:], list(ends)).any()
        for row, b in enumerate(pairs.candidate)
        if not pairs.identical[row]
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


def shaped(pairs: Pairs, references: References) -> Remarks:
    """Logits changed by the request, which neither scores nor logprobs show."""
    names = references.lookup.shaped_by
    if not names or bool((pairs.identical & pairs.same_prompt).all()):
        return Remarks()
    said = message(
        "conclude.shaped",
        "the engines chose from logits that {parameters} changed, which scores and logprobs do not show: only "
        "tokens that were the best even so are judged",
        parameters=names,
    )
    return _reason(said, NextStep(Step.UNSHAPED, said.id, names=names))


def undecided(pairs: Pairs, judged: Judged, references: References) -> Remarks:
    """Tokens of which the lists do not say enough, under penalties, to tell how far below the best they lie."""
    tokens = beyond = 0
    widest, wanted = 0.0, 0.0
    for row, key in enumerate(pairs.keys):
        gaps = judged.gaps.get(key)
        if gaps is None or gaps.wanted is None or pairs.identical[row] or judged.classes.get(key) == "corrupt":
            continue
        after = slice(max(0, int(pairs.parts_at[row])), None)
        left = gaps.undecided(references.tolerance)[after]
        tokens += len(left)
        if left.any():
            beyond += int(left.sum())
            widest = max(widest, float(gaps.most[after][left].max()))
            short = gaps.wanted[after][left]
            wanted = max(wanted, float(np.nan_to_num(short, nan=0.0).max()))
    if not beyond:
        return Remarks()
    said = message(
        "conclude.undecided",
        "{count} of {tokens} tokens after a divergence may lie up to {widest:.2f} nats below the best that the "
        "penalties leave, though nothing says that they do: {ask}",
        count=beyond,
        tokens=tokens,
        widest=widest,
        ask=_more_of(wanted),
    )
    if beyond <= FLAT * tokens:
        return _note(said)
    step = NextStep(Step.SCORE_TOP, said.id, int(min(wanted, MOST_LISTED))) if wanted else Step.SCORE
    return _reason(said, step)


def _more_of(wanted: float) -> Message:
    """What would tell."""
    if wanted:
        return message(
            "conclude.lists_too_short",
            "the lists are too short, `--score-top {wanted}` makes them long enough",
            wanted=int(min(wanted, MOST_LISTED)),
        )
    return message(
        "conclude.logits_unknown",
        "a repetition penalty needs the logits, and the scores do not record `logsumexp`, which makes logits of "
        "logprobs",
    )


def unjudged(judged: Judged, number: int) -> Remarks:
    """Completions that differ and that nothing judges; `number` as in the statistics."""
    at_fault = set(judged.contradicted) | set(judged.baseline_ends) | set(judged.broken.baseline)
    left = number - sum(judged.classes[key] == "unjudged" for key in at_fault)
    if not left:
        return Remarks()
    return _reason(
        message(
            "conclude.unjudged",
            "{count} completion differs and nothing says whether that is noise: score it (`parity run --score all`) or "
            "capture with --logprobs{suspects}",
            plural="{count} completions differ and nothing says whether that is noise: score them "
            "(`parity run --score all`) or capture with --logprobs{suspects}",
            count=left,
            suspects=_suspicion(judged),
        ),
        Step.SCORE,
        Step.ARBITER,
        Step.REFERENCE,
        Step.LOGPROBS,
    )


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


def limited(completions: int, tokens: int, judged: Judged, references: References) -> Remarks:
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
        return _reason(said, *short, Step.SCORE, Step.ARBITER, Step.REFERENCE)
    return _note(
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


def _tokens_of(tokens: int, completions: int) -> Message:
    return message(
        "conclude.tokens_of",
        "{tokens} of {completions}",
        tokens=words.tokens(tokens),
        completions=words.completions(completions),
    )


def faulty_baseline(judged: Judged, references: References) -> Remarks:
    """Where it is the baseline that is wrong, so that nothing follows for the candidate."""
    found = Remarks()
    if judged.contradicted:
        found += _reason(
            message(
                "conclude.baseline_rejected",
                "the scores reject the baseline's own token in {completions} (first: {first}): the baseline is at "
                "fault there, or the scores are not of these arms",
                completions=words.completions(len(judged.contradicted)),
                first=str(judged.contradicted[0]),
            ),
            Step.ARBITER,
            Step.SWAP,
            Step.REFERENCE,
        )
    ends = {key: why for key, why in judged.baseline_ends.items() if key not in judged.broken.baseline}
    if ends:
        key, why = next(iter(ends.items()))
        found += _reason(
            message(
                "conclude.baseline_ends",
                "the baseline itself ends where it should not in {completions} (first: {first}: {why})",
                completions=words.completions(len(ends)),
                first=str(key),
                why=why,
            ),
            Step.SWAP,
            Step.REFERENCE,
        )
    floor = references.floor
    if floor is not None and floor.rejected:
        wrong = [key for key, (gaps, _) in references.baseline.items() if bool((gaps.gap > NOT_NOISE).any())]
        found += _reason(
            message(
                "conclude.baseline_beyond_noise",
                "{count} of the baseline's own {tokens} lies more than {limit:g} nats below the best when scored "
                "(first: {first}): the baseline is faulty itself, or the scores are not its own",
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


def broken_rules(judged: Judged) -> Remarks:
    """Rules of the requests that the baseline broke, or both arms, and what could not be checked of them."""
    broken, found = judged.broken, Remarks()
    if broken.baseline:
        key, why = next(iter(broken.baseline.items()))
        found += _reason(
            message(
                "conclude.baseline_broke",
                "the baseline itself breaks a rule of its request in {completions} (first: {first}: {why}): the "
                "candidate is not accused of that",
                completions=words.completions(len(broken.baseline)),
                first=str(key),
                why=why,
            ),
            Step.SWAP,
            Step.REFERENCE,
        )
    if broken.both:
        key, why = next(iter(broken.both.items()))
        found += _reason(
            message(
                "conclude.both_broke",
                "the engine breaks a rule of its request in both arms, in {completions} (first: {first}: {why}): a "
                "fault, and none that sets the candidate apart",
                completions=words.completions(len(broken.both)),
                first=str(key),
                why=why,
            ),
            Step.REFERENCE,
        )
    if broken.unheeded:
        key, why = next(iter(broken.unheeded.items()))
        found += _reason(
            message(
                "conclude.unheeded",
                "the server does not keep to a rule of its requests, in {completions} (first: {first}: {why}): it may "
                "not know the parameter",
                completions=words.completions(len(broken.unheeded)),
                first=str(key),
                why=why,
            ),
            Step.REFERENCE,
        )
    return found + Remarks(limits=tuple(_unchecked(broken)))


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


def blind(chance: float | None, completions: int) -> Remarks:
    """Distributions so flat that wrong tokens pass as well (`chance_to_pass`)."""
    if chance is None or chance <= FLAT:
        return Remarks()
    return _reason(
        message(
            "conclude.blind",
            "{count} completion parts at a near-tie, and after it up to {chance:.0%} of all tokens would pass (random "
            "weights, or too wide a tolerance?): what was compared there says little",
            plural="{count} completions part at near-ties, and after these up to {chance:.0%} of all tokens would pass "
            "(random weights, or too wide a tolerance?): what was compared there says little",
            count=completions,
            chance=chance,
        ),
        Step.CALIBRATE,
    )


def doubtful(judged: Judged, floor: Floor | None) -> Remarks:
    """Tokens a little beyond the tolerance: noise where the baseline's own tokens show such gaps, else left open."""
    if not judged.doubtful:
        return Remarks()
    key, (position, gap) = max(judged.doubtful.items(), key=lambda item: item[1][1])
    what = message(
        "conclude.doubtful",
        "{count} completion has a token or two a little beyond the tolerance and nothing else wrong (the widest gap: "
        "{gap:.3f} nats, {completion} at {position})",
        plural="{count} completions have a token or two a little beyond the tolerance and nothing else wrong (the "
        "widest gap: {gap:.3f} nats, {completion} at {position})",
        count=len(judged.doubtful),
        gap=gap,
        completion=str(key),
        position=position,
    )
    if floor is not None:
        return _note(
            message(
                "conclude.doubtful_noise",
                "{what}; the baseline's own tokens lie up to {largest:.3f} nats below the best: noise",
                what=what,
                largest=floor.largest,
            )
        )
    return _reason(
        message(
            "conclude.doubtful_open",
            "{what}: score the baseline's own completions as well (`--score all`), or use `--tolerance auto`",
            what=what,
        ),
        Step.SCORE,
        Step.REFERENCE,
    )


def random_sampling(tests: SamplingStats, pairs: Pairs) -> Remarks:
    """What could not be tested where sampling is random."""
    found = Remarks()
    equal = len(pairs.keys) and bool((pairs.identical & pairs.same_prompt).all())
    if not tests.scored and not equal:  # equal draws need no distribution
        found += _reason(
            message(
                "conclude.random_unscored",
                "sampling is random and there are no scores: only the run's statistics could be compared",
            ),
            Step.SCORE,
            Step.REFERENCE,
        )
    if tests.scored and "likelihood" not in tests.adjusted:
        found += _note(
            message(
                "conclude.likelihood_not_compared",
                "the likelihood of the arms was not compared: it needs scores of both, for 8 requests or more "
                "(`parity run --score all`)",
            )
        )
    return found


def flat(floor: Floor | None) -> Remarks:
    """A checkpoint whose distributions leave little power."""
    if floor is None or floor.share_flat <= FLAT:
        return Remarks()
    return _note(
        message(
            "conclude.flat",
            "at {share:.0%} of positions the five best tokens lie within {tolerance} nats (random weights?): a fault "
            "that takes one of them cannot be seen there",
            share=floor.share_flat,
            tolerance=DEFAULT_TOLERANCE,
        )
    )


def drifted(drift: Drift | None, found: Numerics | None) -> Remarks:
    """A systematic difference that no single token shows, where it is no finding (`numerics`)."""
    if drift is None or not drift.drifted or (found is not None and {"gaps", "gaps_beyond"} & set(found.failed)):
        return Remarks()
    return _note(
        message(
            "conclude.drifted",
            "the candidate's mean gap is {candidate:.4f} nats, the baseline's {baseline:.4f} (p = {p_value:.2g}): a "
            "small systematic difference, though no single token shows it",
            candidate=drift.candidate_mean_gap,
            baseline=drift.baseline_mean_gap,
            p_value=drift.p_value,
        )
    )


def numerics(found: Numerics | None, findings: Sequence[Finding], untested: Message | None) -> Remarks:
    """The arm's numerics as a whole, where they keep a run from saying PASS, or must be known beside the verdict."""
    if untested is not None:
        return _note(
            message(
                "conclude.numerics_untested",
                "whether the numerics of the arms differ as a whole was not tested: {why}",
                why=untested,
            )
        )
    said = next((one for one in findings if one.kind is Kind.NUMERICS), None)
    if found is None or said is None or said.severity is Severity.CORRUPT:
        return Remarks()
    differs = message(
        "conclude.numerics",
        "the numerics of the run as a whole differ from the baseline's: {why}",
        why=said.evidence.why,
    )
    return (
        Remarks(limits=(differs,))
        if found.other_kernels
        else _reason(differs, NextStep(Step.LONGER, differs.id, number=4))
    )


def noise(floor: NoiseFloor | None) -> Remarks:
    """How often the arms differ from the baseline's first round."""
    return Remarks() if floor is None else _note(as_note(floor))


def _note(one: Message) -> Remarks:
    return Remarks(notes=(one,))
