"""Conventions of servers and of other people's scores: each turns a pair of captures into what such a server writes.

The pair is world A of the planted set: what an engine made, with true scores, clean or with one planted fault. It gets
what the set leaves out: texts by the embedded tokenizer, both arms' own logprobs (the scores with the noise of one more
kernel), scores of the baseline's completions that the candidate repeats, and a stop at an EOS in every third row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from planted_set import ARMS, Case, cases, clean
from tokenizers import Tokenizer
from worlds import BASE, Shape, World, speculating

from parity.comparator import CompareOptions, Comparison, compare
from parity.records import Capture, Completion, Key, ScoreKey, TopLogprobs

MODEL = Path(__file__).resolve().parents[1] / "parity" / "models" / "tiny-qwen3-next-mtp"
EOS = 0
ENDS_AT = 100
"""Tokens of the rows that stop at an EOS, without it."""
NOISE = 0.014
"""Nats between an engine's own logprob and the score, as measured on clean arms (standard deviation). Both arms decode
equal tokens with the same kernels, and have the same of it."""

Scored = dict[ScoreKey, TopLogprobs]


@dataclass(frozen=True, slots=True)
class Pair:
    """What is compared, and what one habit after another has made of it."""

    baseline: Capture
    candidate: Capture
    scores: Scored
    faulty: Key | None = None
    """The row with the planted fault."""

    def asked(self, *, with_text_check: bool = True) -> Comparison:
        options = CompareOptions(detokenize=detokenize if with_text_check else None)
        return compare(self.baseline, self.candidate, self.scores, options)


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL / "tokenizer.json"))


def detokenize(ids: Any) -> str:
    return _decoded(tuple(int(one) for one in ids))


@lru_cache(maxsize=20_000)
def _decoded(ids: tuple[int, ...]) -> str:
    """The same few completions are read in every test."""
    return str(tokenizer().decode(ids, skip_special_tokens=True))


def each(arm: Capture, change: Callable[[Completion], Completion]) -> Capture:
    return replace(arm, completions={key: change(one) for key, one in arm.completions.items()})


def served(arm: Capture, **said: Any) -> Capture:
    """The arm as a server's: no engine's settings, and what the worker writes of it."""
    known = arm.header.extra.get("served") or {}
    extra = {**arm.header.extra, "served": {**known, **said}}  # type: ignore[dict-item]
    header = replace(arm.header, backend="server", engine={}, extra=extra)
    return replace(arm, header=header, counters={})


def turned(pair: Pair) -> Pair:
    """The arms the other way round: what is done to the candidate of it is done to the baseline."""
    return replace(pair, baseline=pair.candidate, candidate=pair.baseline)


def by_hand(pair: Pair) -> Pair:
    """The same as somebody's own script writes it down, who names no server."""
    return replace(pair, baseline=_unnamed(pair.baseline), candidate=_unnamed(pair.candidate))


def filled_up(pair: Pair, side: int, token: int, rows: int | None = None) -> Pair:
    """One arm with the first rows (all of them) as long as the longest, as a batch of transformers' `generate` is."""
    arm = (pair.baseline, pair.candidate)[side]
    longest = max(len(one.token_ids) for one in arm)
    short = [one for one in arm if len(one.token_ids) < longest][:rows]
    filled = {
        one.key: replace(one, token_ids=np.append(one.token_ids, [token] * (longest - len(one.token_ids))))
        for one in short
    }
    arm = replace(arm, completions={**arm.completions, **filled})
    return replace(pair, **{("baseline", "candidate")[side]: arm})


def fills_prompts_up(pair: Pair, side: int, *, echoes: bool = False) -> Pair:
    """One arm with prompts filled up in front to the longest, and in front of the outputs too: `generate` again."""
    arm = (pair.baseline, pair.candidate)[side]
    longest = max(len(one.prompt_token_ids) for one in arm)

    def filled(one: Completion) -> Completion:
        prompt = np.append([EOS] * (longest - len(one.prompt_token_ids)), one.prompt_token_ids).astype(np.int64)
        if not echoes:
            return replace(one, prompt_token_ids=prompt)
        return replace(one, token_ids=np.append(prompt, one.token_ids), logprobs=None)

    return replace(pair, **{("baseline", "candidate")[side]: each(arm, filled)})


def _unnamed(arm: Capture) -> Capture:
    extra = {name: value for name, value in arm.header.extra.items() if name != "served"}
    backend = "own" if arm.header.backend == "server" else arm.header.backend
    return replace(arm, header=replace(arm.header, backend=backend, extra=extra))


# ------------------------------------------------------------------ the pair


def plain(case: Case | None = None, seed: int = 0) -> Pair:
    """Both arms with everything that an honest server can say; with the fault of `case` in the candidate."""
    baseline, candidate, scores = clean("A")
    known = scores
    if case is not None:
        candidate, scores = case.candidate, case.scores
    ends = {key for row, key in enumerate(baseline.completions) if row % 3 == 0}
    ends -= {case.key} if case is not None else set()
    rows: list[dict[Key, Completion]] = [{}, {}]
    merged: Scored = {}
    for row, key in enumerate(baseline.completions):
        a, b = baseline.completions[key], candidate.completions[key]
        top = scores[ScoreKey(ARMS[1], *key)]
        agreed = _common(a.token_ids, clean("A")[1].completions[key].token_ids)
        whole = _cut(known[ScoreKey(ARMS[1], *key)], agreed + 1)  # where they part, both read the same
        rest = certain(a.token_ids[len(whole) :], whole.ids.shape[1])
        top_a = TopLogprobs(np.concatenate([whole.ids, rest.ids]), np.concatenate([whole.values, rest.values]))
        for side, one, lists in ((0, a, top_a), (1, b, top)):
            lists = _chosen_last(lists, one.token_ids)
            finish = one.finish_reason
            tokens = one.token_ids
            if key in ends and len(tokens) > ENDS_AT:
                tokens = np.append(tokens[:ENDS_AT], EOS)
                end = certain(tokens[-1:], lists.ids.shape[1])
                cut = _cut(lists, ENDS_AT)
                lists = TopLogprobs(np.concatenate([cut.ids, end.ids]), np.concatenate([cut.values, end.values]))
                finish = "stop"
            if side == 1 or agreed == len(a.token_ids):
                merged[ScoreKey(ARMS[side], *key)] = lists
            noise = np.random.default_rng([seed, row]).normal(0, NOISE, lists.values.shape)
            own = _once(TopLogprobs(lists.ids, np.minimum(lists.values + noise, 0.0)))
            rows[side][key] = replace(
                one, token_ids=tokens, text=detokenize(tokens), finish_reason=finish, logprobs=own
            )
    return Pair(
        replace(baseline, completions=rows[0]),
        replace(candidate, completions=rows[1]),
        merged,
        None if case is None else case.key,
    )


@cache
def drawn(shape: Shape, seed: int, *, temperature: float = 0.8, scored: bool = False) -> Pair:
    """Both arms drawn at random, each with numbers of its own: 48 completions of at most 64 tokens, words of the
    embedded tokenizer that stand for themselves wherever they are. Lists name the chosen token twice."""
    world = World(seed, shape)
    asked = world.requests(48)
    made = [
        world.run(asked, arm, max_tokens=64, temperature=temperature, logprobs=4).capture
        for arm in (BASE, speculating(2))
    ]
    names = dict(zip((one.header.arm for one in made), ARMS, strict=True))
    scores = world.score(*made) if scored else {}
    arms = []
    for arm in made:
        backend, variant = names[arm.header.arm].split("/")
        header = replace(arm.header, arm=names[arm.header.arm], backend=backend, variant=variant, vocab_size=2048)
        header = replace(header, engine={})  # no mode of logprobs: a script need not say it
        arms.append(replace(each(arm, _in_words), header=header))
    return Pair(*arms, {key._replace(arm=names[key.arm]): _lists_in_words(top) for key, top in scores.items()})


@cache
def _words() -> np.ndarray:
    """For each token of a world its word: the end for the end."""
    pieces = sorted(tokenizer().get_vocab().items(), key=lambda item: item[1])
    words = [token for piece, token in pieces if piece[0] == "Ġ" and piece[1:].isascii() and piece[1:].isalpha()]
    alone = [one for one in words if tokenizer().encode(f" of{detokenize([one])}").ids[-1:] == [one]]
    return np.array([EOS, *alone[:511]], dtype=np.int64)


def _in_words(one: Completion) -> Completion:
    tokens, prompt = _words()[one.token_ids], _words()[one.prompt_token_ids]
    lists = one.logprobs and _lists_in_words(one.logprobs)
    return replace(one, token_ids=tokens, prompt_token_ids=prompt, text=detokenize(tokens), logprobs=lists)


def _lists_in_words(top: TopLogprobs) -> TopLogprobs:
    return TopLogprobs(np.where(top.ids < 0, top.ids, _words()[np.maximum(top.ids, 0)]), top.values)


def _once(top: TopLogprobs) -> TopLogprobs:
    """The lists where a token that stands twice has one number."""
    last, values = top.ids[:, -1:], top.values.copy()
    twin = (top.ids[:, :-1] == last).argmax(axis=1)
    is_twice = (top.ids[:, :-1] == last).any(axis=1)
    values[is_twice, -1] = values[is_twice, twin[is_twice]]
    return TopLogprobs(top.ids, values)


def _common(a: np.ndarray, b: np.ndarray) -> int:
    size = min(len(a), len(b))
    different = np.flatnonzero(a[:size] != b[:size])
    return int(different[0]) if len(different) else size


def _cut(top: TopLogprobs, length: int) -> TopLogprobs:
    return TopLogprobs(top.ids[:length], top.values[:length])


def certain(tokens: np.ndarray, width: int) -> TopLogprobs:
    """Lists that have these tokens on top."""
    ids = np.tile(np.arange(3, 3 + width), (len(tokens), 1))
    values = np.tile(np.array([-0.05, *(-4.0 - n for n in range(width - 1))]), (len(tokens), 1))
    ids[:, 0] = tokens
    return TopLogprobs(ids.astype(np.int64), values)


def _chosen_last(top: TopLogprobs, tokens: np.ndarray) -> TopLogprobs:
    """The lists with the engine's own token in them, as the set has it in its last column."""
    ids = top.ids.copy()
    size = min(len(ids), len(tokens))
    missing = ~(ids[:size] == tokens[:size, None]).any(axis=1)
    ids[:size, -1] = np.where(missing, tokens[:size], ids[:size, -1])
    return TopLogprobs(ids, top.values)


FAULTS = ("drop5", "dup8", "leak12", "garbled-random6", "sub-random", "loop3", "eos")


@cache
def planted(fault: str, which: int = 0) -> Pair:
    """The plain pair with one fault, in a row that nothing else is done to."""
    rows = list(clean("A")[0].completions)
    found = [
        case
        for case in cases("A")
        if case.fault == fault and not (case.traceless or case.after_near_tie) and rows.index(case.key) % 3
    ]
    return plain(found[which])


# ------------------------------------------------------------------ habits

Habit = Callable[[Pair], Pair]
HABITS: dict[str, Habit] = {}
"""By name; each is what one server does throughout, at the candidate unless its name says otherwise."""


def habit(make: Habit) -> Habit:
    HABITS[make.__name__] = make
    return make


def candidate_rows(pair: Pair, change: Callable[[Completion], Completion], **said: Any) -> Pair:
    return replace(pair, candidate=each(served(pair.candidate, **said), change))


def text_alone(pair: Pair, change: Callable[[str], str] = str, *, adds_eos: bool = True) -> Pair:
    """As the worker writes it: ids made from the text, no logprobs, no scores of ids that nobody gave."""

    def made(one: Completion) -> Completion:
        text = change(one.text or "")
        ids = tokenizer().encode(text, add_special_tokens=False).ids
        ids += [EOS] if adds_eos and one.finish_reason == "stop" and ids[-1:] != [EOS] else []
        return replace(one, text=text, token_ids=np.array(ids, dtype=np.int64), logprobs=None)

    pair = candidate_rows(pair, made, token_source="retokenised", prompt_source="plan")
    return replace(pair, scores={key: top for key, top in pair.scores.items() if key.arm != pair.candidate.header.arm})


# Text


@habit
def strips_leading_blanks(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, text=(one.text or "").lstrip()))


@habit
def strips_trailing_blanks(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, text=(one.text or "").rstrip()))


@habit
def strips_both_ends(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, text=(one.text or "").strip()))


@habit
def shows_special_tokens(pair: Pair) -> Pair:
    def shown(one: Completion) -> Completion:
        return replace(one, text=tokenizer().decode(one.token_ids.tolist(), skip_special_tokens=False))

    return candidate_rows(pair, shown)


@habit
def begins_with_a_blank(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, text=" " + (one.text or "")))


@habit
def ends_with_a_line_feed(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, text=(one.text or "") + "\n"))


@habit
def gives_no_text(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, text=None))


@habit
def gives_empty_text(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, text=""))


@habit
def baseline_strips_blanks(pair: Pair) -> Pair:
    return replace(pair, baseline=each(served(pair.baseline), lambda one: replace(one, text=(one.text or "").strip())))


@habit
def text_and_no_ids(pair: Pair) -> Pair:
    return text_alone(pair)


@habit
def stripped_text_and_no_ids(pair: Pair) -> Pair:
    return text_alone(pair, str.strip)


@habit
def text_with_a_blank_and_no_ids(pair: Pair) -> Pair:
    return text_alone(pair, lambda text: " " + text)


@habit
def scored_text_and_no_ids(pair: Pair) -> Pair:
    """Ids made from the text are often the engine's own; then the reference can say something of them."""
    scores = dict(pair.scores)
    made = text_alone(pair)
    for key, one in made.candidate.completions.items():
        score_key = ScoreKey(pair.candidate.header.arm, *key)
        if score_key in scores and np.array_equal(one.token_ids, pair.candidate.completions[key].token_ids):
            made.scores[score_key] = scores[score_key]
    return made


# The prompt


@habit
def reports_no_prompt(pair: Pair) -> Pair:
    none = np.empty(0, dtype=np.int64)
    return candidate_rows(pair, lambda one: replace(one, prompt_token_ids=none), prompt_source=None)


@habit
def baseline_reports_no_prompt(pair: Pair) -> Pair:
    none = np.empty(0, dtype=np.int64)
    return replace(pair, baseline=each(pair.baseline, lambda one: replace(one, prompt_token_ids=none)))


@habit
def begins_the_prompt_with_bos(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, prompt_token_ids=np.append([EOS], one.prompt_token_ids)))


@habit
def echoes_tokens(pair: Pair) -> Pair:
    def echoed(one: Completion) -> Completion:
        tokens = np.concatenate([one.prompt_token_ids, one.token_ids])
        text = detokenize(one.prompt_token_ids) + (one.text or "")
        return replace(one, token_ids=tokens, text=text, logprobs=_after(one.logprobs, len(one.prompt_token_ids)))

    return candidate_rows(pair, echoed)


def _after(top: TopLogprobs | None, missing: int) -> TopLogprobs | None:
    """Lists with `missing` empty ones before them."""
    if top is None:
        return None
    shape = (missing, top.ids.shape[1])
    return TopLogprobs(
        np.concatenate([np.full(shape, -1), top.ids]), np.concatenate([np.full(shape, np.nan), top.values])
    )


@habit
def echoes_text(pair: Pair) -> Pair:
    return candidate_rows(
        pair, lambda one: replace(one, text=detokenize(one.prompt_token_ids) + (one.text or "")), prompt_source="plan"
    )


@habit
def echoes_text_and_gives_no_ids(pair: Pair) -> Pair:
    made = text_alone(pair)

    def echoed(one: Completion) -> Completion:
        text = detokenize(one.prompt_token_ids) + (one.text or "")
        ids = tokenizer().encode(text, add_special_tokens=False).ids
        return replace(one, text=text, token_ids=np.array(ids, dtype=np.int64))

    return replace(made, candidate=each(made.candidate, echoed))


@habit
def cuts_prompts_from_the_left(pair: Pair) -> Pair:
    def cut(one: Completion) -> Completion:
        return replace(one, prompt_token_ids=one.prompt_token_ids[-8:])

    longest = max(len(one.prompt_token_ids) for one in pair.candidate)
    assert longest > 8
    return candidate_rows(pair, cut)


@habit
def cuts_prompts_and_begins_them_with_bos(pair: Pair) -> Pair:
    return begins_the_prompt_with_bos(cuts_prompts_from_the_left(pair))


@habit
def begins_prompts_with_bos_and_cuts_them(pair: Pair) -> Pair:
    return cuts_prompts_from_the_left(begins_the_prompt_with_bos(pair))


@habit
def echoes_stripped_text_and_gives_no_ids(pair: Pair) -> Pair:
    return text_alone(echoes_text(pair), str.strip)


@habit
def echoes_text_after_a_blank_and_gives_no_ids(pair: Pair) -> Pair:
    return text_alone(echoes_text(pair), lambda text: " " + text)


@habit
def echoes_the_prompt_and_a_blank_and_gives_no_ids(pair: Pair) -> Pair:
    return text_alone(echoes_text(text_alone(pair, lambda text: " " + text)))


@habit
def says_it_read_less_of_the_prompt(pair: Pair) -> Pair:
    def said(one: Completion) -> Completion:
        usage = {"prompt_tokens": min(8, len(one.prompt_token_ids)), "completion_tokens": len(one.token_ids)}
        return _says(one, usage=usage)

    return candidate_rows(pair, said, prompt_source="plan")


def _says(one: Completion, **more: Any) -> Completion:
    """The completion with this in what the server says of it."""
    return replace(one, server={**(one.server or {}), **more})


# Ends


def _without_eos(one: Completion) -> Completion:
    if one.finish_reason != "stop" or not len(one.token_ids) or int(one.token_ids[-1]) != EOS:
        return one
    top = one.logprobs
    first_alone = top is not None and len(top) == 1 < len(one.token_ids)
    lists = top if top is None or first_alone or not len(top) else _cut(top, len(top) - 1)
    return replace(one, token_ids=one.token_ids[:-1], logprobs=lists)


@habit
def drops_the_eos(pair: Pair) -> Pair:
    pair = candidate_rows(pair, _without_eos)
    return replace(pair, scores=fitting(pair))


def fitting(pair: Pair) -> Scored:
    """The scores, cut to the tokens that there are."""
    arms = {arm.header.arm: arm for arm in (pair.baseline, pair.candidate)}
    return {key: _cut(top, len(arms[key.arm].completions[Key(*key[1:])].token_ids)) for key, top in pair.scores.items()}


@habit
def baseline_drops_the_eos(pair: Pair) -> Pair:
    pair = replace(pair, baseline=each(served(pair.baseline), _without_eos))
    return replace(pair, scores=fitting(pair))


@habit
def drops_the_eos_but_its_logprobs(pair: Pair) -> Pair:
    def dropped(one: Completion) -> Completion:
        return replace(_without_eos(one), logprobs=one.logprobs)

    pair = candidate_rows(pair, dropped)
    return replace(pair, scores=fitting(pair))


def _with_reasons(pair: Pair, names: dict[str, str | None]) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, finish_reason=names.get(str(one.finish_reason))))


@habit
def says_eos_token(pair: Pair) -> Pair:
    return _with_reasons(pair, {"stop": "eos_token", "length": "length"})


@habit
def says_stop_sequence_and_max_tokens(pair: Pair) -> Pair:
    return _with_reasons(pair, {"stop": "stop_sequence", "length": "max_tokens"})


@habit
def says_reasons_in_capitals(pair: Pair) -> Pair:
    return _with_reasons(pair, {"stop": "STOP", "length": "MAX_TOKENS"})


@habit
def says_reasons_in_camel_case(pair: Pair) -> Pair:
    return _with_reasons(pair, {"stop": "eosFound", "length": "maxPredictedTokensReached"})


@habit
def says_reasons_that_nobody_knows(pair: Pair) -> Pair:
    return _with_reasons(pair, {"stop": "natural", "length": "budget"})


@habit
def says_empty_reasons(pair: Pair) -> Pair:
    return _with_reasons(pair, {"stop": "", "length": ""})


@habit
def names_the_eos_as_what_it_stopped_at(pair: Pair) -> Pair:
    """As SGLang's `matched_stop` does."""
    return candidate_rows(pair, lambda one: replace(one, stop_reason=EOS if one.finish_reason == "stop" else None))


@habit
def names_the_eos_in_words(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: replace(one, stop_reason="</s>" if one.finish_reason == "stop" else None))


@habit
def says_no_finish_reason(pair: Pair) -> Pair:
    return _with_reasons(pair, {})


@habit
def says_stop_always(pair: Pair) -> Pair:
    return _with_reasons(pair, {"stop": "stop", "length": "stop"})


@habit
def ends_at_its_context(pair: Pair) -> Pair:
    """A context shorter than prompt and limit together: the longest ten rows end by length before the limit."""
    totals = sorted(len(one.prompt_token_ids) + len(one.token_ids) for one in pair.candidate)
    context = totals[-10] - 1

    def ended(one: Completion) -> Completion:
        room = context - len(one.prompt_token_ids)
        if len(one.token_ids) <= room or one.key == pair.faulty:
            return one
        tokens, gone = one.token_ids[:room], detokenize(one.token_ids)[len(detokenize(one.token_ids[:room])) :]
        lists = one.logprobs
        top = None if lists is None else _cut(lists, len(lists) - (len(one.token_ids) - room))
        text = one.text and one.text.removesuffix(gone.rstrip() if not one.text.endswith(gone) else gone)
        return replace(one, token_ids=tokens, text=text, logprobs=top, finish_reason="length")

    pair = candidate_rows(pair, ended)
    return replace(pair, scores=fitting(pair))


# Logprobs


def _logprobs(pair: Pair, change: Callable[[Completion, TopLogprobs], TopLogprobs | None], **said: Any) -> Pair:
    def changed(one: Completion) -> Completion:
        return one if one.logprobs is None else replace(one, logprobs=change(one, one.logprobs))

    return candidate_rows(pair, changed, **said)


@habit
def gives_no_logprobs(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: None)


@habit
def gives_logprobs_of_the_first_token(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: _cut(top, 1))


@habit
def gives_logprobs_but_for_the_first_token(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: TopLogprobs(top.ids[1:], top.values[1:]))


@habit
def gives_the_prompts_logprobs_too(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: _after(top, len(one.prompt_token_ids)))


@habit
def gives_certain_logprobs(pair: Pair) -> Pair:
    """Processed logprobs of greedy decoding: 0 for the chosen token, minus infinity for the rest."""

    def certain(one: Completion, top: TopLogprobs) -> TopLogprobs:
        return TopLogprobs(top.ids, np.where(top.ids == one.token_ids[: len(top), None], 0.0, -np.inf))

    return _logprobs(pair, certain)


@habit
def gives_logprobs_at_another_temperature(pair: Pair) -> Pair:
    """Log-softmax at a temperature of 0.5, over what is listed."""

    def scaled(one: Completion, top: TopLogprobs) -> TopLogprobs:
        values = top.values * 2
        total = np.log(np.nansum(np.exp(values), axis=1, keepdims=True))
        return TopLogprobs(top.ids, values - total)

    return _logprobs(pair, scaled)


@habit
def gives_probabilities(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: TopLogprobs(top.ids, np.exp(top.values)))


@habit
def gives_base_2_logprobs(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: TopLogprobs(top.ids, top.values / np.log(2)))


@habit
def gives_base_10_logprobs(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: TopLogprobs(top.ids, top.values / np.log(10)))


@habit
def gives_positive_logprobs(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: TopLogprobs(top.ids, -top.values))


@habit
def rounds_logprobs_to_two_places(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: TopLogprobs(top.ids, top.values.round(2)))


@habit
def rounds_logprobs_to_one_place(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: TopLogprobs(top.ids, top.values.round(1)))


@habit
def gives_logprobs_in_half_precision(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: TopLogprobs(top.ids, top.values.astype(np.float16).astype(np.float64)))


@habit
def says_9999_for_what_it_does_not_list(pair: Pair) -> Pair:
    """OpenAI's sentinel."""

    def clipped(one: Completion, top: TopLogprobs) -> TopLogprobs:
        return TopLogprobs(top.ids, np.where(top.values < -6, -9999.0, top.values))

    return _logprobs(pair, clipped)


def _without_numbers(one: Completion, top: TopLogprobs, at: np.ndarray) -> TopLogprobs:
    """null for the chosen tokens of these places."""
    is_chosen = top.ids == one.token_ids[: len(top), None]
    return TopLogprobs(top.ids, np.where(is_chosen & at[:, None], np.nan, top.values))


@habit
def gives_null_for_some_tokens(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: _without_numbers(one, top, np.arange(len(top)) % 5 == 1))


@habit
def gives_null_for_the_eos(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: _without_numbers(one, top, one.token_ids[: len(top)] == EOS))


@habit
def lists_fewer_than_asked(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: _kept_columns(one, top, 2))


@habit
def lists_the_chosen_token_alone(pair: Pair) -> Pair:
    return _logprobs(pair, lambda one, top: _kept_columns(one, top, 0))


def _kept_columns(one: Completion, top: TopLogprobs, width: int) -> TopLogprobs:
    """The best `width` and the chosen token."""
    tokens = one.token_ids[: len(top)]
    own = np.where(top.ids == tokens[:, None], top.values, -np.inf).max(axis=1)
    ids = np.concatenate([tokens[:, None], top.ids[:, :width]], axis=1)
    return TopLogprobs(ids, np.concatenate([own[:, None], top.values[:, :width]], axis=1))


# Counts, samples, streams


def _usage(one: Completion, completion_tokens: int) -> Completion:
    counted = {"completion_tokens": completion_tokens, "prompt_tokens": len(one.prompt_token_ids)}
    return _says(one, usage=counted)


@habit
def counts_the_eos_in_its_usage(pair: Pair) -> Pair:
    pair = candidate_rows(pair, lambda one: _usage(_without_eos(one), len(one.token_ids)))
    return replace(pair, scores=fitting(pair))


@habit
def counts_no_eos(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: _usage(one, len(_without_eos(one).token_ids)))


@habit
def counts_otherwise(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: _usage(one, len(one.token_ids) + 1))


@habit
def gives_no_reason_and_says_so(pair: Pair) -> Pair:
    said = ["it has no finish_reason"]
    return candidate_rows(pair, lambda one: _says(replace(one, finish_reason=None), problems=said))


@habit
def gives_fewer_samples_than_asked(pair: Pair) -> Pair:
    def asked(arm: Capture) -> Capture:
        return replace(arm, header=replace(arm.header, sampling={**arm.header.sampling, "n": 4}))

    return replace(pair, baseline=asked(served(pair.baseline)), candidate=asked(served(pair.candidate)))


@habit
def counts_with_another_tokenizer(pair: Pair) -> Pair:
    """A proxy that counts for a server which does not (LiteLLM)."""
    return candidate_rows(pair, lambda one: _usage(one, 1 + len(one.text or "") // 4))


@habit
def counts_the_prompt_too(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: _usage(one, len(one.prompt_token_ids) + len(one.token_ids)))


@habit
def counts_reasoning_that_it_does_not_give(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: _usage(one, len(one.token_ids) + 20 + int(one.token_ids[:1].sum()) % 64))


@habit
def counts_nothing(pair: Pair) -> Pair:
    return candidate_rows(pair, lambda one: _usage(one, 0))


@habit
def says_what_of_the_prompt_was_not_cached(pair: Pair) -> Pair:
    """As ollama and llama.cpp do: a prompt seen before counts for one token or none."""

    def said(one: Completion) -> Completion:
        counted = {"prompt_tokens": int(one.token_ids[:1].sum()) % 2, "completion_tokens": len(one.token_ids)}
        return _says(one, usage=counted)

    return candidate_rows(pair, said, prompt_source="plan")
