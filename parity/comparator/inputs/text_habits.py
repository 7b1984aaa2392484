"""What servers do to every text: blanks at its ends taken off or put there, special tokens shown, the prompt in front.

Learned from texts beside what they should be: what the tokenizer says, else the other arm's of the same tokens. A habit
is what nearly all texts of an arm have, and these are taken as what they should be; the text that has not is a fault as
before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np
from msgspec import Struct, structs

from parity.comparator.inputs.bans import terminators
from parity.comparator.inputs.conventions import LIKE_IT, habit_note
from parity.comparator.inputs.said import first_match
from parity.comparator.inputs.servers import by_others, served
from parity.comparator.inputs.text import INT32_MAX, same_text
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, Json, TokenIds

_LOOKED_AT = 256
"""Completions looked at to learn a habit."""

FEW = 2
"""Texts that must show it."""


class Sample(Struct, frozen=True):
    """A text, and what its token ids say."""

    text: str
    expected: str
    prompt: str | None = None
    """The prompt's text, where it is known."""
    at_end_token: bool = False
    """The ids end with the token that stopped it."""
    may_end: bool = False
    """They may end without it: it stopped, and the ids do not say at what."""


class TextHabit(Struct, frozen=True):
    """`plain` makes texts comparable: of a sample's text and of what it should be."""

    what: Message | None = None
    plain: Callable[[Sample], tuple[str, str]] = lambda one: (one.text, one.expected)
    vague: bool = False
    """It says only that there is something more."""

    def same(self, one: Sample) -> bool:
        return same_text(*self.plain(one))


NONE = TextHabit()


def habit_of(samples: Sequence[Sample], *, of_server: bool = False) -> TextHabit:
    """The habit, or the two, that explain texts which are not what they should be; NONE where none does, or there is no
    need of one. Many servers strip their texts: of one a single text is enough to show that."""
    odd = [one for one in samples if not same_text(one.text, one.expected)]
    if len(odd) < FEW:
        return next((one for one in _shown_by_one(odd, of_server) if _explained(one, samples) == len(samples)), NONE)
    known = _habits(odd)
    one = _best(known, samples)
    if _explained(one, samples) == len(samples):
        return one
    left = [_changed(sample, *one.plain(sample)) for sample in samples if not one.same(sample)]
    for rest in _shown_by_one(left, of_server):
        if _explained(both := _then(one, rest), samples) == len(samples):
            return both
    two = _best([_then(first, second) for first in known for second in known if first is not second], samples)
    habit = two if _explained(two, samples) >= _explained(one, samples) + FEW else one
    return habit if all(_explained(habit, of) >= LIKE_IT * len(of) for of in (odd, samples)) else NONE


def _shown_by_one(odd: Sequence[Sample], of_server: bool) -> list[TextHabit]:
    """What a single text is enough for, where all others are as they would be: the name of the token it stopped at,
    and, of servers or where no tokenizer says what it should be, blanks taken off its ends."""
    ends = [match[0] for one in odd if one.at_end_token and (match := _IN_BRACKETS.search(one.text))]
    blanks = _TAKES_OFF if odd and (of_server or all(one.prompt is None for one in odd)) else ()
    return [*blanks, *map(_ending, ends)]


def _best(habits: Sequence[TextHabit], samples: Sequence[Sample]) -> TextHabit:
    return max(habits, key=lambda habit: _explained(habit, samples), default=NONE)


def _explained(habit: TextHabit, samples: Sequence[Sample]) -> int:
    return sum(habit.same(one) for one in samples)


def _habits(odd: Sequence[Sample]) -> list[TextHabit]:
    """Those that these texts could come from, the smallest first."""
    found = [_EMPTY] if not any(one.text for one in odd) else [*_BLANKS, *_put_there(odd)]
    ended = [
        (one.text.rpartition(core)[2], one)
        for one in odd
        if (one.at_end_token or one.may_end) and (core := one.expected.strip())
    ]
    endings = {ending.strip() for ending, one in ended if ending != one.text and ending.strip()}
    if len(endings) == 1:
        found.append(_ending(endings.pop()))
    if all(one.prompt for one in odd):
        found += [_ECHO, *_put_there([_changed(one, *_ECHO.plain(one)) for one in odd])]
    elif all(one.prompt is None for one in odd):
        found += [_BARE, _MORE]
    return found


def _put_there(odd: Sequence[Sample]) -> list[TextHabit]:
    """Blanks and line feeds that are put before or after a text, as the first one shows that has something to say."""
    one = next((one for one in odd if one.expected.strip() and one.expected in one.text), None)
    if one is None:
        return []
    before, _, after = one.text.partition(one.expected)
    if before.strip() or after.strip():
        return []
    what = message("text.habit_put", "it puts blanks or line feeds around every text")
    return [TextHabit(what, lambda one: (one.text, before + one.expected + after))]


def _then(first: TextHabit, second: TextHabit) -> TextHabit:
    """One after the other."""
    what = message("text.habit_two", "{first}, and {second}", first=first.what, second=second.what)
    return TextHabit(
        what, lambda one: second.plain(_changed(one, *first.plain(one))), vague=first.vague or second.vague
    )


def _changed(one: Sample, text: str, expected: str) -> Sample:
    return structs.replace(one, text=text, expected=expected)


def _stripped_left(one: Sample) -> tuple[str, str]:
    return one.text, one.expected.lstrip()


def _stripped_right(one: Sample) -> tuple[str, str]:
    return one.text, one.expected.rstrip()


def _stripped(one: Sample) -> tuple[str, str]:
    return one.text, one.expected.strip()


def _with_blank(one: Sample) -> tuple[str, str]:
    return one.text, " " + one.expected


def _bare(one: Sample) -> tuple[str, str]:
    return one.text.strip(), one.expected.strip()


def _without_prompt(one: Sample) -> tuple[str, str]:
    return one.text, (one.prompt or "") + one.expected


def _end_alone(one: Sample) -> tuple[str, str]:
    text, expected = one.text.rstrip(), one.expected.rstrip()  # either arm may take blanks off
    return text[max(0, len(text) - len(expected)) :], expected


_EMPTY = TextHabit(message("text.habit_empty", "it gives no text"), lambda one: (one.text, ""))
_TAKES_OFF = (
    TextHabit(message("text.habit_left", "it takes blanks off the beginning of its texts"), _stripped_left),
    TextHabit(message("text.habit_right", "it takes blanks off the end of its texts"), _stripped_right),
    TextHabit(message("text.habit_both", "it takes blanks off both ends of its texts"), _stripped),
)
_BLANKS = (
    *_TAKES_OFF,
    TextHabit(message("text.habit_blank", "it begins every text with a blank"), _with_blank),
)
_BARE = TextHabit(
    message(
        "text.habit_bare", "blanks at the ends of its texts are not those of the other arm, which may take them off"
    ),
    _bare,
)
_ECHO = TextHabit(message("text.habit_echo", "it begins every text with the prompt"), _without_prompt)

_MORE = TextHabit(
    message("text.habit_more", "its texts begin with something else (their prompts?), which was not looked at"),
    _end_alone,
    vague=True,
)


def _ending(ending: str) -> TextHabit:
    return TextHabit(_shows(ending), lambda one: _without_ending(one, ending))


def _shows(ending: str) -> Message:
    return message("text.habit_ending", "it shows the token that ends a text, {ending}", ending=repr(ending))


def _without_ending(one: Sample, ending: str) -> tuple[str, str]:
    if (one.at_end_token or one.may_end) and one.text.endswith(ending):
        return one.text.removesuffix(ending), one.expected
    return one.text, one.expected + ending if one.at_end_token else one.expected


Detokenize = Callable[[Sequence[int]], str]


def as_written(
    baseline: Capture, candidate: Capture, detokenize: Detokenize | None
) -> tuple[Capture, Capture, Remarks]:
    """Both arms without what a server, or a script, does to every text.

    Without a tokenizer the texts of one arm are all that says what the other's should be, and of a difference between
    them one arm's habit is enough: the candidate's, unless the baseline's says more. What an arm shows at the end of
    its texts is known without the other.
    """
    remarks = Remarks()
    if detokenize is None:
        baseline, candidate, remarks = _without_shown_ends(baseline, candidate)
    of_baseline, of_candidate = _habit(baseline, candidate, detokenize), _habit(candidate, baseline, detokenize)
    if detokenize is None and of_baseline is not NONE and of_candidate is not NONE:
        if of_candidate.vague and not of_baseline.vague:
            of_candidate = NONE
        else:
            of_baseline = NONE
    plain_baseline, said = _without(of_baseline, baseline, candidate, detokenize)
    plain_candidate, more = _without(of_candidate, candidate, baseline, detokenize)
    return plain_baseline, plain_candidate, remarks + said + more


def _without_shown_ends(baseline: Capture, candidate: Capture) -> tuple[Capture, Capture, Remarks]:
    """Both arms without the token that ends a text, where one alone shows it."""
    ends = terminators(baseline.header) | terminators(candidate.header)
    shown = [_shown_end(arm, ends) for arm in (baseline, candidate)]
    if shown[0] == shown[1]:
        return baseline, candidate, Remarks()
    arms, remarks = [baseline, candidate], Remarks()
    for side, end in enumerate(shown):
        if end is not None:
            cut = {one.key: replace(one, text=(one.text or "").removesuffix(end)) for one in _ended(arms[side], ends)}
            arms[side] = arms[side].but(cut)
            remarks += habit_note(arms[side], _shows(end))
    return arms[0], arms[1], remarks


def _shown_end(arm: Capture, ends: Collection[int]) -> str | None:
    """What stands in angle brackets at the end of all texts whose ids end at a token that stops them, and of no other
    text."""
    if not by_others(arm.header) or not arm.has_texts:
        return None
    ended = {one.key: one.text or "" for one in _ended(arm, ends)}
    found = {match[0] if (match := _IN_BRACKETS.search(text)) else None for text in ended.values()}
    end = found.pop() if len(ended) >= FEW and len(found) == 1 else None
    if end is None or any((one.text or "").endswith(end) for one in arm if one.key not in ended):
        return None
    return end


_IN_BRACKETS: Final = re.compile(r"<[^<>\s]+>$")


def _ended(arm: Capture, ends: Collection[int]) -> Sequence[Completion]:
    """Completions whose ids end with a token that stops them. Of an arm that gives no reasons each may have stopped."""
    some = arm.stopped if "stop" in arm.finish_reasons else arm
    return [one for one in some if len(one.token_ids) and int(one.token_ids[-1]) in ends]


def _habit(arm: Capture, other: Capture, detokenize: Detokenize | None) -> TextHabit:
    if not by_others(arm.header) or not arm.has_texts:
        return NONE
    if detokenize is None and served(other.header) and not served(arm.header):
        return NONE  # where the texts of the two tell nothing but that they differ, it is the server's habit
    ends = terminators(arm.header) | terminators(other.header)
    some = (one for one in arm if len(one.token_ids))
    pairs = ((one, sample) for one in some if (sample := _sample(one, other, detokenize, ends)) is not None)
    samples = [sample for one, sample in islice(pairs, _LOOKED_AT) if not _may_be_cut(arm, one)]
    return habit_of(samples, of_server=served(arm.header))


def _without(habit: TextHabit, arm: Capture, other: Capture, detokenize: Detokenize | None) -> tuple[Capture, Remarks]:
    if habit.what is None:
        return arm, Remarks()
    ends = terminators(arm.header) | terminators(other.header)
    plain = {
        one.key: replace(one, text=found)
        for one in arm
        if (sample := _sample(one, other, detokenize, ends)) is not None
        and (found := _without_habit(habit, arm, one, sample)) is not None
    }
    return arm.but(plain), habit_note(arm, habit.what)


def _without_habit(habit: TextHabit, arm: Capture, one: Completion, sample: Sample) -> str | None:
    """The text as it would be; None where the habit does not explain it. A stop string may have cut it off, and may not
    be among the tokens."""
    if habit.same(sample):
        return sample.expected
    if sample.prompt is None or not _may_be_cut(arm, one):
        return None
    cuts = (_cut(sample, arm.sampling_of(one)), *_beginnings(sample))
    return next((cut for cut in cuts if habit.same(structs.replace(sample, expected=cut))), None)


def _cut(sample: Sample, sampling: Mapping[str, Json]) -> str:
    """What the tokens say, up to the stop string that is complete first."""
    asked = sampling.get("stop")
    stops = [asked] if isinstance(asked, str) else asked if isinstance(asked, list | tuple) else ()
    match = first_match(sample.expected, [one for one in stops if isinstance(one, str) and one])
    if match is None:
        return sample.expected
    return sample.expected[: match.end if sampling.get("include_stop_str_in_output") is True else match.start]


def _beginnings(sample: Sample) -> Iterator[str]:
    """The beginning of what the tokens say that ends as the text does."""
    blanks = len(sample.expected) - len(sample.expected.lstrip())
    if sample.text and sample.expected.startswith(sample.text, blanks):
        yield sample.expected[: blanks + len(sample.text)]


def _may_be_cut(arm: Capture, one: Completion) -> bool:
    """May a stop string have ended it?"""
    return isinstance(one.stop_reason, str) or (one.finish_reason == "stop" and bool(arm.sampling_of(one).get("stop")))


def _sample(one: Completion, other: Capture, detokenize: Detokenize | None, ends: Collection[int]) -> Sample | None:
    """A completion's text beside what it should be; None where nothing says that."""
    if one.text is None:
        return None
    if not len(one.token_ids):  # it stopped at once, at a token that is left out: its text may still begin with a blank
        return None if detokenize is None else Sample(one.text, "", detokenize(_readable(one.prompt_token_ids)))
    twin = other.completions.get(one.key)
    same = twin is not None and np.array_equal(_without_end(one.token_ids, ends), _without_end(twin.token_ids, ends))
    at_end = int(one.token_ids[-1]) in ends
    may_end = one.finish_reason in ("stop", None) and not at_end
    if detokenize is not None:
        ids, prompt = _readable(one.token_ids), _readable(one.prompt_token_ids)
        expected, before = detokenize(ids), detokenize(prompt)
        if not same_text(one.text, expected) and detokenize([*prompt, *ids]) == before + one.text:
            expected = one.text  # as it goes on after the prompt, where that is not as if it stood alone
        return Sample(one.text, expected, before, at_end, may_end)
    if twin is None or twin.text is None or not same:
        return None
    return Sample(one.text, twin.text, None, at_end, may_end)


def _without_end(token_ids: TokenIds, ends: Collection[int]) -> TokenIds:
    """The tokens but for a last one that may have stopped them: some write it down, some do not."""
    return token_ids[:-1] if len(token_ids) and int(token_ids[-1]) in ends else token_ids


def _readable(token_ids: TokenIds) -> list[int]:
    """The ids that a tokenizer takes."""
    return [int(token) for token in token_ids if 0 <= token <= INT32_MAX]
