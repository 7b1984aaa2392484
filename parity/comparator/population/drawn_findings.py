"""What is found of all draws of a run beside the tests that are adjusted together: each has error rates of its own."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import median
from typing import Final

from msgspec import Struct, structs

from parity.comparator.detect.cutoffs import EDGE
from parity.comparator.detect.draws import tail_logs
from parity.comparator.detect.pairs import Judged
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.population import leaning_draws, rare_draws
from parity.comparator.reference import surprisal
from parity.comparator.reference.drawn_lists import Cut, listed_width
from parity.comparator.reference.references import References
from parity.comparator.stats import Numerics
from parity.comparator.types import run_finding
from parity.messages import message
from parity.records import Capture, Completion, Finding, Key, Kind, TokenIds, TopLogprobs, words
from parity.records.evidence import RunEvidence
from parity.records.many_findings import corrupt_of, heads

PROVEN: Final = 30.0
"""Nats of evidence that requests draw by the same numbers, from which on it is a finding: less than one chance in 10¹²,
beside the error rate of the tests."""

WIDTHS_APART: Final = 1
"""Tokens by which the lists of the arms may differ: longer ones show more of what is rare."""


class Surprisals(Struct, frozen=True):
    """How surprising a completion is that was drawn: nats a token (`mean`). `said`: the same for those that say the
    same; width: of its lists, by `listed_width`; rarest: None where what it was drawn from is not known, or hardly a
    token is listed."""

    mean: float
    said: int
    width: int
    rarest: rare_draws.Rarest | None = None


def surprisals_of(
    one: Completion, tokens: TokenIds, top: TopLogprobs, inputs: Inputs, references: References
) -> Surprisals:
    """By its score; `tokens`: those of its tokens that both arms give out."""
    shaping, temperature = references.lookup.shaping(one), inputs.temperature_of(one)
    logs = surprisal.tail_logs(top, tokens, temperature, inputs.vocab_size)
    said = hash((one.prompt_token_ids.tobytes(), one.token_ids.tobytes()))
    found = Surprisals(surprisal.mean_surprisal(logs), said, listed_width([top], [one.token_ids]))
    if shaping.unknown or not temperature or found.width < 2:
        return found
    slack = surprisal.slack_at(temperature)
    if not shaping.none or temperature < surprisal.COLDEST:
        logs, slack = tail_logs(one, top, references.lookup, temperature, inputs.vocab_size)
    return structs.replace(found, rarest=rare_draws.rarest(one.key, logs, slack))


def same_numbers(inputs: Inputs, judged: Judged) -> tuple[Finding, ...]:
    """One noise for all requests of the candidate alone, where parity gave each a seed of its own: elsewhere it may be
    that whoever captured it gave one to all."""
    nats, header = judged.draws.candidate_alone, inputs.candidate.header
    if nats is None or nats < PROVEN:
        return ()
    p_value = math.exp(-nats)
    why = message(
        "run.same_numbers",
        "the candidate's requests draw by the same random numbers, the baseline's do not, and parity asked both alike, "
        "each request with a seed of its own (p = {p_value:.2g})",
        p_value=p_value,
    )
    evidence = RunEvidence(why=why, test="same_numbers", p_value=p_value)
    return (run_finding(header.arm, inputs.baseline.header.arm, Kind.UNJUSTIFIED, evidence),)


def _draw_apart(inputs: Inputs, judged: Judged) -> bool:
    """Does each completion draw by numbers of its own, as far as anything says?"""
    shared = inputs.one_seed_for or judged.draws.noise_shared_by or judged.draws.candidate_alone is not None
    return not shared


def leaning(inputs: Inputs, references: References, judged: Judged) -> tuple[Finding, ...]:
    """Tokens of some ids that come oftener than at their probability, where each completion draws by itself and no test
    says more of how: another temperature favours some ids as well."""
    if not _draw_apart(inputs, judged):
        return ()
    left_out = judged.draws.not_counted | judged.broken.baseline.keys()
    left_out |= {one.key for one in heads(corrupt_of(judged.findings))}
    sides = {
        arm.header.arm: _drawn_alone(arm, inputs, references, left_out) for arm in (inputs.baseline, inputs.candidate)
    }
    if len(sides) < 2:
        return ()
    found = leaning_draws.of_arms(sides, inputs.arms, inputs.vocab_size)
    if found is None or found.nats < leaning_draws.PROVEN:
        return ()
    p_value = math.exp(-found.nats)
    why = message(
        "run.leaning",
        "the candidate drew {which} in {drawn} of {tokens}, where {due:.0f} were due, and the baseline does not lean "
        "so (p = {p_value:.2g})",
        which=found.which,
        drawn=found.drawn,
        tokens=words.tokens(found.tokens),
        due=found.due,
        p_value=p_value,
    )
    evidence = RunEvidence(why=why, test="leaning", p_value=p_value)
    return (run_finding(*inputs.arms[::-1], Kind.UNJUSTIFIED, evidence),)


NAMED: Final = 8
"""Completions with rare tokens that are named."""


def rare(
    inputs: Inputs, judged: Judged, surprisals: tuple[Sequence[Surprisals], Sequence[Surprisals]]
) -> tuple[Finding, ...]:
    """Tokens that a sampler hardly ever draws, in too many completions beside those that are corrupt by themselves."""
    widths = [median([one.width for one in some] or [0]) for some in surprisals]
    if not _draw_apart(inputs, judged) or abs(widths[0] - widths[1]) > WIDTHS_APART:
        return ()
    corrupt = {one.key for one in heads(corrupt_of(judged.findings))}
    baseline, candidate = ({one.said: one.rarest for one in some if one.rarest is not None} for some in surprisals)
    mine = [one for one in candidate.values() if one.key not in corrupt]
    found = rare_draws.too_many(list(baseline.values()), mine)
    if found is None:
        return ()
    p_value = math.exp(-found.proof)
    why = message(
        "run.rare_draws",
        "{some} of {of} completions have a token that a sampler draws at one of {places} places or fewer, where "
        "{due:.2g} were due, and {baseline} of the baseline's {of_baseline} (p = {p_value:.2g}; first: {names})",
        some=len(found.keys),
        of=found.of,
        places=int(float(f"{math.exp(found.nats):.0e}")),
        due=found.due,
        baseline=found.baseline,
        of_baseline=found.of_baseline,
        p_value=p_value,
        names=list(map(str, found.keys[:NAMED])),
    )
    evidence = RunEvidence(why=why, test="rare_draws", p_value=p_value)
    return (run_finding(*inputs.arms[::-1], Kind.UNJUSTIFIED, evidence),)


def _drawn_alone(
    arm: Capture, inputs: Inputs, references: References, left_out: Collection[Key]
) -> list[tuple[Completion, TopLogprobs, float]]:
    """Scored completions that were drawn, with nothing beside the temperature: as many as are looked at."""
    found, tokens = [], 0
    for one in arm:
        temperature, top = inputs.temperature_of(one), references.lookup.score(arm.header.arm, one)
        if top is None or not temperature or one.key in left_out or not references.lookup.shaping(one).none:
            continue
        if Cut.of(arm.sampling_of(one)) == Cut():
            found.append((one, top, temperature))
            tokens += len(one.token_ids)
        if tokens >= leaning_draws.MOST:
            break
    return found


NOISIER: Final = 2.0
"""Times the baseline's own logprobs lie off the scores, from which on the candidate's logits may be what moves tokens
beyond a cut-off."""


def _is_noisier(numerics: Numerics | None) -> bool:
    if numerics is None or numerics.candidate is None or numerics.baseline is None:
        return False
    return numerics.candidate.sd > NOISIER * numerics.baseline.sd


def beyond_cutoff(inputs: Inputs, judged: Judged, numerics: Numerics | None) -> tuple[Finding, ...]:
    """Tokens a little beyond a cut-off, in too many completions, where nothing says that its logits are noisier."""
    found = judged.beyond_cutoff
    if found is None or _is_noisier(numerics):
        return ()
    why = message(
        "run.beyond_cutoff",
        "{some} of {of} completions have a token {nats:g} nats or more beyond what {asked} leaves, {baseline} of the "
        "baseline's {of_baseline} (p = {p_value:.2g}): the candidate cuts off less than it was asked to",
        some=found.completions,
        of=found.of,
        nats=EDGE,
        asked=", ".join(f"{name}={value:g}" for name, value in found.asked.items()),
        baseline=found.baseline,
        of_baseline=found.of_baseline,
        p_value=found.p_value,
    )
    evidence = RunEvidence(why=why, test="cutoff", p_value=found.p_value)
    return (run_finding(*inputs.arms[::-1], Kind.BEYOND_CUTOFF, evidence),)
