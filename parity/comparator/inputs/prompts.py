"""Prompts as the servers saw them: never reported, begun with one token more, cut from the left, said again in front.

What was asked of both is compared. A prompt that one server changed in a way of its own makes another question: such
completions are left out with a reason, and nobody is accused for the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
from msgspec import Struct, field, structs

from parity.comparator.inputs.conventions import LIKE_IT
from parity.comparator.inputs.finish_reasons import limit_of
from parity.comparator.inputs.servers import by_others, served
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, RaggedTokens, ScoreKey, TokenIds
from parity.records.objects import object_of

MOST_ADDED = 1
"""Tokens that a server may put before every prompt of its own accord. What has more is another template, and an
`input_mismatch`."""

FEW = 2
"""Prompts that must show a habit."""


class Prompts(Struct, frozen=True):
    baseline: Capture
    candidate: Capture
    remarks: Remarks = field(default_factory=Remarks)
    echoed: Mapping[ScoreKey, int] = field(default_factory=dict)
    """Completions that began with their prompt: how many tokens they have without it."""
    of_baseline: Mapping[Key, Completion] = field(default_factory=dict)
    """What is left out, which was not asked alike: it shows the habits of an arm as well as the rest does."""
    of_candidate: Mapping[Key, Completion] = field(default_factory=dict)

    def swapped(self) -> Prompts:
        return structs.replace(
            self,
            baseline=self.candidate,
            candidate=self.baseline,
            of_baseline=self.of_candidate,
            of_candidate=self.of_baseline,
        )

    def whole(self) -> tuple[Capture, Capture]:
        """Baseline and candidate with what is left out."""
        sides = (self.baseline, self.of_baseline), (self.candidate, self.of_candidate)
        baseline, candidate = (
            replace(arm, completions={**arm.completions, **rest}) if rest else arm for arm, rest in sides
        )
        return baseline, candidate

    def without(self, arm: Capture) -> Capture:
        """An arm of `whole` without it again."""
        gone = self.of_baseline.keys() | self.of_candidate.keys()
        return _but(arm, gone) if gone else arm


def as_asked(baseline: Capture, candidate: Capture) -> Prompts:
    """Both captures without what is mere habit in their prompts; what was asked otherwise is left out of both."""
    both = Prompts(baseline, candidate)
    for rule in (
        _filled,
        _without_echo,
        _without_padding,
        _without_additions,
        _without_begun_and_cut,
        _without_cut,
        _without_additions,  # of what is left where the other arm cuts
        _without_read_in_part,
    ):
        both = rule(both)
        both = rule(both.swapped()).swapped()
    return both


# Each rule looks at the habits of the `candidate`; `as_asked` turns the pair round for the baseline's.


def _filled(both: Prompts) -> Prompts:
    """A server that reports no prompt at all: the other arm's stands for it."""
    arm, other = both.candidate, both.baseline
    if not arm.completions or arm.prompts.total or not other.prompts.total:
        return both
    filled = {
        key: replace(one, prompt_token_ids=other.completions[key].prompt_token_ids)
        for key, one in arm.completions.items()
        if key in other.completions
    }
    limit = message(
        "inputs.no_prompts",
        "{arm}: its prompts were not recorded, so that it was asked the same is not checked",
        arm=arm.header.arm,
    )
    arm = arm.but(filled)
    return structs.replace(both, candidate=arm, remarks=both.remarks + Remarks(limits=(limit,)))


def _without_echo(both: Prompts) -> Prompts:
    """An arm that says the prompt again at the beginning of every output, as `generate` of transformers does."""
    arm = both.candidate
    if not by_others(arm.header) or not arm.completions:
        return both
    sizes: dict[Key, int] = {}
    others = 0
    for key, size in zip(arm.completions, _echoed(arm), strict=True):
        if size:
            sizes[key] = size
            continue
        others += 1
        if others > (1 - LIKE_IT) * len(arm.completions):
            return both
    if all(_echoed(replace(both.baseline, completions=_of(both.baseline, sizes)))) and not _too_long(arm, sizes):
        return both  # both arms' outputs begin so: a model that repeats what it is asked
    cut = {key: _from(arm.completions[key], size) for key, size in sizes.items()}
    note = message("inputs.echo", "{arm} begins every output with its prompt: left out", arm=arm.header.arm)
    return structs.replace(
        both,
        candidate=arm.but(cut),
        remarks=both.remarks + Remarks(notes=(note,)),
        echoed={**both.echoed, **{ScoreKey(arm.header.arm, *key): len(one.token_ids) for key, one in cut.items()}},
    )


def _too_long(arm: Capture, sizes: Mapping[Key, int]) -> bool:
    """Are there outputs longer than they may be, and none without so many first tokens?"""
    over = []
    for key, size in sizes.items():
        one = arm.completions[key]
        limit = limit_of(arm, one)
        if limit is not None:
            over.append((len(one.token_ids) > limit, len(one.token_ids) - size > limit))
    return any(whole for whole, _ in over) and not any(rest for _, rest in over)


def _of(arm: Capture, keys: Collection[Key]) -> dict[Key, Completion]:
    return {key: one for key, one in arm.completions.items() if key in keys}


def _echoed(arm: Capture) -> Iterator[int]:
    """How many first tokens of each output are its prompt, with what fills that up to the longest one; 0 for none."""
    longest = int(arm.prompts.sizes.max(initial=0))
    may = chain.from_iterable(_may_echo(arm.prompts, arm.tokens, longest))
    for one, looked_at in zip(arm, may, strict=True):
        if not looked_at:
            yield 0
            continue
        tokens, prompt, size = one.token_ids, one.prompt_token_ids, len(one.prompt_token_ids)
        if size and np.array_equal(tokens[:size], prompt):
            yield size
        else:
            yield longest if size and _fills_up(tokens[:longest], prompt) else 0


def _may_echo(prompts: RaggedTokens, tokens: RaggedTokens, longest: int) -> Iterator[list[bool]]:
    """Of each output, some at a time: does it begin with its prompt's first token, or have its last one where one
    filled up to `longest` has it? All others are no echo: one look at two columns."""
    count, begin, size = len(prompts), 0, _LOOKED_AT_FIRST
    while begin < count:
        end = min(begin + size, count)
        asked, said = (np.diff(column.offsets[begin : end + 1]) for column in (prompts, tokens))
        some = np.flatnonzero((asked > 0) & (said > 0))
        rows, first, last = some + begin, np.zeros(len(some), dtype=np.int64), np.minimum(said[some], longest) - 1
        begins = tokens.each(rows, first) == prompts.each(rows, first)
        found = np.zeros(end - begin, dtype=np.bool_)
        found[some] = begins | (tokens.each(rows, last) == prompts.each(rows, asked[some] - 1))
        yield found.tolist()
        begin, size = end, min(2 * size, _LOOKED_AT)


_LOOKED_AT_FIRST, _LOOKED_AT = 1 << 10, 1 << 16
"""Completions looked at at once: few at first, since most arms show soon that they say no prompt again."""


def _fills_up(whole: TokenIds, end: TokenIds) -> bool:
    """Is it this end, with one token again and again before it?"""
    return _ends_with(whole, end) and bool((whole[: len(whole) - len(end)] == whole[0]).all())


def _without_padding(both: Prompts) -> Prompts:
    """An arm whose prompts are filled up in front to one length, as a batch of transformers' `generate` is."""
    arm = both.candidate
    if not by_others(arm.header):
        return both
    pairs = _differing(both)
    lengths = {len(one.prompt_token_ids) for one in arm} if pairs else set()
    if len(pairs) < FEW or len(lengths) != 1 or not all(_fills_up(b, a) for a, b in pairs.values()):
        return both
    tokens = {int(b[0]) for _, b in pairs.values()}
    if len(tokens) != 1 or len({len(a) for a, _ in pairs.values()}) == 1:
        return both  # as many in each are another template
    plain = {key: replace(arm.completions[key], prompt_token_ids=a) for key, (a, _) in pairs.items()}
    note = message(
        "inputs.prompts_filled",
        "{arm} fills its prompts up to {size} tokens, with token {token} in front: left out",
        arm=arm.header.arm,
        size=lengths.pop(),
        token=tokens.pop(),
    )
    arm = arm.but(plain)
    return structs.replace(both, candidate=arm, remarks=both.remarks + Remarks(notes=(note,)))


def _from(one: Completion, size: int) -> Completion:
    """The completion without its first `size` tokens; its text stays, and is known to begin with the prompt."""
    lists = one.logprobs
    if lists is not None and len(lists) in (len(one.token_ids), len(one.token_ids) + 1):  # with that of an end
        lists = lists.part(size)
    return replace(one, token_ids=one.token_ids[size:], logprobs=lists)


def _without_additions(both: Prompts) -> Prompts:
    """A server that puts the same few tokens (a BOS) before every prompt: the model was asked something else."""
    pairs = _differing(both)
    few = 1 if both.of_candidate else FEW  # of what is left, where an arm cuts the others
    if len(pairs) < few or len(pairs) < both.candidate.in_common_with(both.baseline):
        return both
    added = {tuple(b[: len(b) - len(a)].tolist()) for a, b in pairs.values() if _ends_with(b, a)}
    if len(added) != 1 or not all(_ends_with(b, a) for a, b in pairs.values()):
        return both
    tokens = next(iter(added))
    if len(tokens) > MOST_ADDED:
        return both
    reason = message(
        "inputs.prompts_begun",
        "every prompt of {arm} begins with {tokens}, which {other} has not: the model was not asked the same, and "
        "nothing was compared. Have the server leave it out (vLLM: `add_special_tokens: false`), or give both its "
        "token ids",
        arm=both.candidate.header.arm,
        other=both.baseline.header.arm,
        tokens=list(tokens),
    )
    return _left_out(both, pairs, reason)


def _without_begun_and_cut(both: Prompts) -> Prompts:
    """A server that puts a token before every prompt, and keeps the last tokens of one too long for it: with that token
    (it cuts first), or without."""
    arm, base = both.candidate, both.baseline
    pairs = _differing(both)
    size = int(arm.prompts.sizes.max(initial=0))
    if not served(arm.header) or len(pairs) < FEW or size < 2:
        return both
    begun = [b for a, b in pairs.values() if len(b) == len(a) + 1 and _ends_with(b, a)]
    token = int((begun or [b for _, b in pairs.values() if len(b)])[0][0])
    all_asked = [
        (one.prompt_token_ids, arm.completions[key].prompt_token_ids)
        for key, one in base.completions.items()
        if key in arm.completions
    ]
    cut = {key: pair for key, pair in pairs.items() if len(pair[0]) >= size}
    keeps_it = all(np.array_equal(b, np.append(token, a[max(0, len(a) - size + 1) :])) for a, b in all_asked)
    loses_it = bool(begun) and all(np.array_equal(b, np.append(token, a)[-size:]) for a, b in all_asked)
    both_cut = loses_it and not cut  # the other arm keeps as many: short ones alone differ
    if not both_cut and (len(cut) < FEW or len({len(a) for a, _ in cut.values()}) == 1 or not (keeps_it or loses_it)):
        return both
    rest = pairs.keys() - cut.keys()
    if cut:
        both = _left_out(both, cut, _cut(arm.header.arm, len(cut), size - keeps_it))
    if not rest:
        return both
    reason = message(
        "inputs.some_prompts_begun",
        "{count} prompt of {arm} begins with token {token}, which {other} has not: not compared. Have the server leave "
        "it out (vLLM: `add_special_tokens: false`), or give both its token ids",
        plural="{count} prompts of {arm} begin with token {token}, which {other} has not: not compared. Have the "
        "server leave it out (vLLM: `add_special_tokens: false`), or give both its token ids",
        count=len(rest),
        arm=arm.header.arm,
        token=token,
        other=base.header.arm,
    )
    return _left_out(both, dict.fromkeys(rest), reason)


def _without_cut(both: Prompts) -> Prompts:
    """A server that keeps the last tokens of a prompt too long for it, after the first one or without."""
    if not served(both.candidate.header):
        return both
    size = int(both.candidate.prompts.sizes.max(initial=0))
    pairs = {key: (a, b) for key, (a, b) in _differing(both).items() if len(b) == size < len(a) and _is_cut(a, b)}
    lost = {len(a) - len(b) for a, b in pairs.values()}
    if len(pairs) < FEW or (len(lost) == 1 and not _only_long_ones(both, pairs)):
        return both  # as many tokens less in each are another template
    return _left_out(both, pairs, _cut(both.candidate.header.arm, len(pairs), size))


def _only_long_ones(both: Prompts, cut: Mapping[Key, object]) -> bool:
    """Are the prompts that are not cut the same in both arms, and none longer than the cut ones?"""
    base, arm = both.baseline, both.candidate
    size = max(len(arm.completions[key].prompt_token_ids) for key in cut)
    rest = [key for key in arm.completions if key in base.completions and key not in cut]
    whole = [base.completions[key].prompt_token_ids for key in rest]
    same = all(np.array_equal(a, arm.completions[key].prompt_token_ids) for key, a in zip(rest, whole, strict=True))
    return bool(rest) and same and all(len(a) <= size for a in whole)


def _is_cut(a: TokenIds, b: TokenIds) -> bool:
    """Is it the end of the other, perhaps after the token that both begin with (a BOS)?"""
    return _ends_with(a, b) or (len(b) > 1 and bool(a[0] == b[0]) and _ends_with(a, b[1:]))


def _without_read_in_part(both: Prompts) -> Prompts:
    """A server that reports no prompt, and whose usage counts fewer tokens than the prompt has."""
    arm = both.candidate
    if not served(arm.header) or not arm.completions:
        return both
    counted = {key: count for key, one in arm.completions.items() if (count := _prompt_tokens(one)) is not None}
    short = {key: count for key, count in counted.items() if count < len(arm.completions[key].prompt_token_ids)}
    fewer = {len(arm.completions[key].prompt_token_ids) - count for key, count in short.items()}
    if not short or (len(short) == len(counted) and len(fewer) == 1):
        return both  # each by as many: another way of counting
    if len(set(short.values())) != 1 and any(
        len(one.prompt_token_ids) > max(short.values()) for key, one in arm.completions.items() if key not in short
    ):
        return both
    pairs = {key: (arm.completions[key].prompt_token_ids,) * 2 for key in short}
    return _left_out(both, pairs, _cut(arm.header.arm, len(short), max(short.values())))


def _cut(arm: str, count: int, size: int) -> Message:
    return message(
        "inputs.prompts_cut",
        "{arm} read no more than {size} tokens of the prompt of {count} completion: not compared. Give the server a "
        "longer context, or take shorter prompts",
        plural="{arm} read no more than {size} tokens of the prompts of {count} completions: not compared. Give the "
        "server a longer context, or take shorter prompts",
        arm=arm,
        count=count,
        size=size,
    )


def _prompt_tokens(one: Completion) -> int | None:
    value = object_of((one.server or {}).get("usage")).get("prompt_tokens")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _differing(both: Prompts) -> dict[Key, tuple[TokenIds, TokenIds]]:
    """(baseline's prompt, candidate's) of the pairs in which they differ."""
    arm, base = both.candidate, both.baseline
    if arm.prompts.same_as(base.prompts) and arm.keys == base.keys:
        return {}
    found = {}
    for key, one in both.candidate.completions.items():
        other = both.baseline.completions.get(key)
        if other is not None and not np.array_equal(one.prompt_token_ids, other.prompt_token_ids):
            found[key] = (other.prompt_token_ids, one.prompt_token_ids)
    return found


def _ends_with(whole: TokenIds, end: TokenIds) -> bool:
    return len(end) < len(whole) and len(end) > 0 and np.array_equal(whole[len(whole) - len(end) :], end)


def _left_out(both: Prompts, keys: Mapping[Key, object], reason: Message) -> Prompts:
    return structs.replace(
        both,
        baseline=_but(both.baseline, keys),
        candidate=_but(both.candidate, keys),
        remarks=both.remarks + Remarks(reasons=(reason,)),
        of_baseline={**both.of_baseline, **_of(both.baseline, keys)},
        of_candidate={**both.of_candidate, **_of(both.candidate, keys)},
    )


def _but(arm: Capture, keys: Collection[Key]) -> Capture:
    return replace(arm, completions={key: one for key, one in arm.completions.items() if key not in keys})
