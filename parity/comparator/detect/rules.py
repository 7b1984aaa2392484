"""The request's own rules: proven from what was asked and the completion alone, whatever scores say.

Asked of both arms, drawn at random or not, before anything else is looked at. Who broke a rule is named: the candidate
by a finding, the baseline by a reason of the verdict. Where both arms break the same rule in the same completion, or
the baseline breaks it throughout, the engine does not keep to it in either arm: that is a reason too, and nobody is
accused of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import Struct, field

from parity.comparator.detect import forbidden, grammars, stop_strings, stops, wording
from parity.comparator.detect.events import Event
from parity.comparator.inputs import servers
from parity.comparator.inputs.asked import Asked
from parity.comparator.inputs.bad_words import Word
from parity.comparator.inputs.conventions import habit_note
from parity.comparator.inputs.normalise import Inputs
from parity.comparator.inputs.said import Writer
from parity.comparator.inputs.servers import gives_no_scores
from parity.comparator.streams.pairing import Pairs
from parity.comparator.types import Remarks
from parity.messages import Message, message
from parity.records import Capture, Completion, Key, Kind
from parity.records.evidence import EndEvidence
from parity.records.sampling import parameter

HABIT = 4
"""A rule that the baseline breaks in one of so many completions, or more often, is none that the engine keeps."""

FEW = 4
"""Completions under a rule that it takes to say so."""


class Arm(Struct, frozen=True):
    """One of two, as the rules look at it."""

    completions: Mapping[Key, Completion]
    writer: Writer
    stops: stops.StopRules
    read_words: Callable[[tuple[str, ...]], tuple[Word, ...]] | None
    """Bad words to tokens; None: no tokenizer is known to be the arms' own."""
    too_long: frozenset[Key]
    """Completions that may go on past their end."""
    as_given: Mapping[Key, Completion] = field(default_factory=dict)
    """Of a server: with the texts that it gave, before its habits were taken off."""
    every_stop: frozenset[str] = frozenset()
    """The stop strings of all requests, where some have their own."""

    def words(self, asked: Asked) -> tuple[Word, ...]:
        return self.read_words(asked.bad_words) if asked.bad_words and self.read_words is not None else ()


Found = Iterator[Event]


class Rule(Struct, frozen=True):
    name: str
    applies: Callable[[Asked], bool]
    look: Callable[[Completion, Asked, Arm], Found]
    needs_ids: bool = True
    """Nothing is known of it where token ids were made from text."""


def _allowed(one: Completion, asked: Asked, arm: Arm) -> Found:
    return forbidden.not_allowed(one, asked, arm.words(asked))


def _bad(one: Completion, asked: Asked, arm: Arm) -> Found:
    return forbidden.bad(one, asked, arm.words(asked))


def _too_early(one: Completion, asked: Asked, arm: Arm) -> Found:
    for event in forbidden.before_min_tokens(one, asked, arm.words(asked)):
        if grammars.goes_on(one, asked, arm.writer, event.position):
            yield event
    if one.finish_reason != "stop" or one.aborted or isinstance(one.stop_reason, str):
        return
    last = asked.ends_with(one)
    count = len(one.token_ids) - (last is not None)
    if count >= asked.min_tokens:
        return
    if last is None and (asked.stops or arm.writer.is_server):
        return  # a stop string ended it, perhaps, or tokens are not in the stream
    if not forbidden.is_any_left(one.token_ids, count, asked, arm.words(asked)):
        return
    if not grammars.goes_on(one, asked, arm.writer, count):
        return  # vLLM lets the end through then (`MinTokensLogitsProcessor`, v0.32.0)
    why = message(
        "early_stop.min_tokens",
        "ends after {tokens} tokens where min_tokens is {least}",
        tokens=count,
        least=asked.min_tokens,
    )
    evidence = EndEvidence(why=why, finish_reason="stop", terminator=last)
    yield Event(Kind.EARLY_STOP, count, int(last is not None), evidence)


def _ignored(one: Completion, asked: Asked, arm: Arm) -> Found:
    """An end at the EOS that was to be ignored."""
    if one.finish_reason != "stop" or one.aborted or isinstance(one.stop_reason, str):
        return
    last = int(one.token_ids[-1]) if len(one.token_ids) else None
    by_eos = last in asked.eos - asked.stop_ids and one.stop_reason in (None, last)
    if not by_eos and (asked.stops or asked.stop_ids or one.stop_reason is not None):
        return
    why = message("early_stop.ignored_eos", "ends at an EOS, though ignore_eos was asked")
    evidence = EndEvidence(why=why, finish_reason="stop", terminator=last if by_eos else None)
    yield Event(Kind.EARLY_STOP, len(one.token_ids) - by_eos, int(by_eos), evidence)


def _overrun(one: Completion, asked: Asked, arm: Arm) -> Found:
    found = stops.overrun(one, arm.stops) if one.key in arm.too_long else None
    if found is not None:
        yield found


def _stop_strings(one: Completion, asked: Asked, arm: Arm) -> Found:
    of_another = list(_stop_of_another(one, asked, arm))
    yield from of_another or stop_strings.broken(one, asked, arm.writer)


def _stop_of_another(one: Completion, asked: Asked, arm: Arm) -> Found:
    """An end at a stop string that other requests have, and this one has not."""
    stop = one.stop_reason
    if not isinstance(stop, str) or stop in asked.stops or stop not in arm.every_stop or one.aborted:
        return
    why = message(
        "early_stop.stop_of_another",
        "ends at the stop string {stop!r}, which other requests have and this one has not",
        stop=stop,
    )
    yield Event(Kind.EARLY_STOP, len(one.token_ids), 0, EndEvidence(why=why, finish_reason=one.finish_reason))


def _text(one: Completion, asked: Asked, arm: Arm) -> Found:
    found = wording.text_mismatch(one, arm.writer) if arm.writer.render is not None else None
    if found is not None:
        yield found


OVERRUN: Final = Rule("max_tokens", lambda asked: True, _overrun)
"""Tokens after a terminator or past `max_tokens`. Of streams that differ the detectors of ends say more (ends.py)."""

STOP: Final = Rule("stop", lambda asked: bool(asked.stops), _stop_strings, needs_ids=False)
OF_ANOTHER: Final = Rule("stop_reason", lambda asked: not asked.stops, _stop_of_another, needs_ids=False)
"""Of requests without stop strings."""
GRAMMAR: Final = "structured_outputs"

RULES: Final = (
    Rule("allowed_token_ids", lambda asked: asked.allowed is not None, _allowed),
    Rule("bad_words", lambda asked: bool(asked.bad_words), _bad),
    Rule("min_tokens", lambda asked: asked.min_tokens > 0, _too_early),
    Rule("ignore_eos", lambda asked: asked.ignores_eos, _ignored),
    STOP,
    Rule("text", lambda asked: asked.shapes_text and not asked.stops, _text),
    OF_ANOTHER,
    OVERRUN,
)

OF_ALL: Final = (OF_ANOTHER, OVERRUN)
"""Rules of every request: the few completions that may break them are known beforehand."""


_NAMES: Final = (*(rule.name for rule in RULES), GRAMMAR)
_OF_VLLM: Final = tuple(name for name in _NAMES if (row := parameter(name)) is not None and row.openai == "vllm")
"""Rules that OpenAI's protocol has not: a server may let them pass."""


class Look(Struct, frozen=True):
    """What one completion makes of the rules of its request."""

    broken: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    """By rule."""
    under: tuple[str, ...] = ()
    """The rules that there are."""
    open_grammar: str | None = None
    """The form of a grammar that could not be checked to the end."""
    unread_words: bool = False
    """It has bad words, and nothing says which tokens they are."""
    unread_stops: bool = False
    """It has stop strings, and nothing says whether they stand in it."""


def look_at(one: Completion, arm: Arm) -> Look:
    """All rules of one request."""
    asked = arm.writer.requests.of(one)
    rules = [rule for rule in RULES if rule.applies(asked) and (arm.writer.has_ids or not rule.needs_ids)]
    found = {rule.name: events for rule in rules if (events := tuple(rule.look(one, asked, arm)))}
    under = [rule.name for rule in rules]
    open_grammar = None
    if asked.grammar is not None:
        look = grammars.look(one, asked, arm.writer, arm.words(asked))
        under.append(GRAMMAR)
        if look.event is not None:
            found[GRAMMAR] = (look.event,)
        open_grammar = asked.grammar.form if look.is_open else None
    unread = bool(asked.bad_words) and (arm.read_words is None or not arm.writer.has_ids)
    return Look(found, tuple(under), open_grammar, unread, stop_strings.is_unread(one, asked, arm.writer))


class Broken(Struct, frozen=True):
    """What was found in all pairs."""

    candidate: Mapping[Key, tuple[Event, ...]] = field(default_factory=dict)
    """What the candidate did and the baseline did not."""
    baseline: Mapping[Key, Message] = field(default_factory=dict)
    """Completions in which the baseline alone broke a rule, and how."""
    both: Mapping[Key, Message] = field(default_factory=dict)
    """Completions in which both arms broke one, or in which the candidate did what the baseline does throughout."""
    unheeded: Mapping[Key, Message] = field(default_factory=dict)
    """Completions in which a server breaks a rule that it does not keep to at all."""
    stopped_otherwise: frozenset[Key] = frozenset()
    """Completions with what a server does to the stop strings of all its texts."""
    habits: Remarks = field(default_factory=Remarks)
    """What that is, of both arms."""
    unread_words: int = 0
    """Completions whose `bad_words` could not be checked, for want of a tokenizer."""
    unread_stops: int = 0
    """Completions whose stop strings could not be checked, for want of text or a tokenizer."""
    open_grammars: tuple[str, ...] = ()
    """The form of each grammar that could not be checked to the end, one for each completion."""

    def excuses(self, key: Key) -> bool:
        """Does the candidate break a rule there of which it is not accused?"""
        return key in self.both or key in self.unheeded or key in self.stopped_otherwise


def break_rules(baseline: Arm, candidate: Arm, pairs: Pairs) -> Broken:
    """All rules, over the pairs that were asked alike."""
    keys = pairs.keys
    if not pairs.same_prompt.all():
        keys = [keys[row] for row in np.flatnonzero(pairs.same_prompt).tolist()]
    ours, theirs = _looks(keys, candidate), _looks(keys, baseline)
    stopping = [_stops_otherwise(looks, arm) for looks, arm in ((ours, candidate), (theirs, baseline))]
    of_stops = [
        _habit_of_stops(arm) if one else Remarks() for one, arm in zip(stopping, (candidate, baseline), strict=True)
    ]
    of_candidate, of_baseline = ({STOP.name} if habit.notes else set() for habit in of_stops)
    excused, unknown = _habits(theirs) - of_baseline, _served_habits(ours, candidate)
    if stopping[0]:
        unknown.add(STOP.name)
    accused: dict[Key, tuple[Event, ...]] = {}
    both: dict[Key, Message] = {}
    unheeded: dict[Key, Message] = {}
    stopped_otherwise = set[Key]()
    parted = {pairs.keys[row] for row in np.flatnonzero(~pairs.identical).tolist()}
    looked_at = [key for key in keys if key in ours.of or key in theirs.of] if ours.of or theirs.of else []
    for key in looked_at:
        look, other = ours.at(key), theirs.at(key).broken
        for rule, events in look.broken.items():
            if rule == OVERRUN.name and key in parted:
                continue
            if rule in of_candidate:
                stopped_otherwise.add(key)
            elif (rule in other and rule not in of_baseline) or rule in excused:
                both.setdefault(key, events[0].evidence.why)
            elif rule in unknown:
                unheeded.setdefault(key, events[0].evidence.why)
            else:
                accused[key] = (*accused.get(key, ()), *events)
    return Broken(
        accused,
        _by_baseline_alone(looked_at, ours, theirs, of_baseline),
        both,
        unheeded,
        frozenset(stopped_otherwise),
        of_stops[0] + of_stops[1],
        sum(look.unread_words for look in ours.of.values()),
        sum(look.unread_stops for look in ours.of.values()),
        tuple(look.open_grammar for look in ours.of.values() if look.open_grammar is not None),
    )


def _by_baseline_alone(keys: Sequence[Key], ours: Looks, theirs: Looks, habits: Collection[str]) -> dict[Key, Message]:
    """Where the baseline breaks a rule that the candidate keeps, and the first such rule; without its habits."""
    found: dict[Key, Message] = {}
    for key in keys:
        kept = (
            events
            for rule, events in theirs.at(key).broken.items()
            if rule not in ours.at(key).broken and rule not in habits
        )
        for events in kept:
            found.setdefault(key, events[0].evidence.why)
    return found


class Looks(Struct, frozen=True):
    """What the completions of an arm make of the rules of their requests."""

    of: Mapping[Key, Look]
    """Of those that were looked at."""
    clean: Look
    """Of all others: nothing can be broken there."""
    others: int

    def at(self, key: Key) -> Look:
        return self.of.get(key, self.clean)

    def under(self) -> Counter[str]:
        """Completions under each rule."""
        found = Counter(rule for look in self.of.values() for rule in look.under)
        return found + Counter(dict.fromkeys(self.clean.under, self.others))

    def broken(self) -> Counter[str]:
        return Counter(rule for look in self.of.values() for rule in look.broken)


def _looks(keys: Sequence[Key], arm: Arm) -> Looks:
    """All rules over these completions; most requests have the run's, and most runs none."""
    requests = arm.writer.requests
    others = [rule for rule in RULES if rule not in OF_ALL and rule.applies(requests.of_all)]
    clean = Look(under=(OVERRUN.name,) if arm.writer.has_ids or not OVERRUN.needs_ids else ())
    if others or requests.of_all.grammar is not None:
        some: Sequence[Key] = keys
    else:
        own = {key for key in requests.arm.own_sampling if requests.of(arm.completions[key]) is not requests.of_all}
        odd = arm.too_long | own | _named_ends(arm)
        some = [key for key in keys if key in odd] if odd else ()
    return Looks({key: look_at(arm.completions[key], arm) for key in some}, clean, len(keys) - len(some))


def _named_ends(arm: Arm) -> frozenset[Key]:
    """Completions that say at which stop string they ended, where requests have some of their own."""
    if not arm.every_stop:
        return frozenset()
    return frozenset(one.key for one in arm.writer.requests.arm.stopped if isinstance(one.stop_reason, str))


def _habits(looks: Looks, rules: Collection[str] = _NAMES) -> set[str]:
    """Of these rules, those that an arm does not keep."""
    under, broken = looks.under(), looks.broken()
    return {rule for rule in rules if under[rule] >= FEW and broken[rule] * HABIT >= max(1, under[rule])}


def _served_habits(looks: Looks, arm: Arm) -> set[str]:
    """What a server does not know: vLLM's own parameters, unless it is vLLM."""
    return _habits(looks, _OF_VLLM) if arm.writer.is_server else set()


def _stops_otherwise(looks: Looks, arm: Arm) -> bool:
    """Does a server leave stop strings in its texts, or take them away, throughout?"""
    if not arm.writer.is_server:
        return False
    ended = [key for key, look in looks.of.items() if STOP.name in look.under]
    given = (arm.as_given.get(key, arm.completions[key]) for key in ended)
    stopped = [
        looks.of[one.key].broken.get(STOP.name, ()) or tuple(_stop_strings(one, arm.writer.requests.of(one), arm))
        for one in given
        if one.finish_reason == "stop"
    ]
    shown = all(event.kind is Kind.TEXT_MISMATCH for events in stopped for event in events)
    count = sum(map(bool, stopped))
    return shown and count >= FEW and count * HABIT >= len(stopped) * (HABIT - 1)


def _habit_of_stops(arm: Arm) -> Remarks:
    """What a server other than vLLM's does to every text that a stop string ended: it keeps to no protocol of vLLM's,
    and its tokens are none the worse for it."""
    asks = arm.writer.requests
    if not gives_no_scores(asks.arm.header):
        return Remarks()
    if asks.of_all.includes_stop:
        return habit_note(asks.arm, message("text.habit_stop_gone", "it takes stop strings off its texts"))
    return habit_note(asks.arm, message("text.habit_stop_left", "it leaves stop strings in its texts"))


class Requested(Struct, frozen=True):
    """The rules of a run's requests, looked at once for all pairs."""

    writer: Writer
    """How the candidate makes text of tokens."""
    ends: stops.StopRules
    """How the candidate's completions may end, by what the whole baseline does."""
    broken: Broken


def _with_texts(arm: Capture, given: Capture) -> Capture:
    """An arm whose texts were taken away to compare it by ids, with its texts: rules are about these."""
    lost = {
        key: replace(one, text=given.completions[key].text)
        for key, one in arm.completions.items()
        if one.text is None and key in given.completions and given.completions[key].text is not None
    }
    return arm.but(lost) if lost and servers.text_alone(arm.header) else arm


def _every_stop(writer: Writer) -> frozenset[str]:
    """As in `Arm`. Most runs end nowhere at a stop string: then none is looked for."""
    arm = writer.requests.arm
    if not any(isinstance(one.stop_reason, str) for one in arm.stopped):
        return frozenset()
    own = (arm.completions[key] for key in arm.own_sampling)
    every = frozenset(stop for one in own if "stop" in one.sampling for stop in writer.requests.of(one).stops)
    return every | frozenset(writer.requests.of_all.stops) if every else every


def requested(inputs: Inputs, pairs: Pairs) -> Requested:
    """What the arms made of their requests' own rules."""
    baseline, candidate, own = inputs.baseline, inputs.candidate, inputs.tokenizers
    sides = []
    for arm, writer, given in zip((baseline, candidate), inputs.writers, inputs.given, strict=True):
        rules = stops.stop_rules(arm.header, baseline)
        # A step's rest is taken off streams to compare them, and a rule is about it; a server's habits are about none.
        known = _with_texts(arm, given) if writer.is_server else given
        late = stops.may_overrun(known.rows, rules, known.tokens, asked_alike=not known.own_sampling)
        too_long = frozenset(known.keys[row] for row in np.flatnonzero(late).tolist())
        as_given = given.completions if writer.is_server else {}
        stops_of = _every_stop(writer)
        sides.append(Arm(known.completions, writer, rules, own.read_words, too_long, as_given, stops_of))
    return Requested(sides[1].writer, sides[1].stops, break_rules(sides[0], sides[1], pairs))
