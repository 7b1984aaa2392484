"""Random sets of habits of servers, on clean arms and on one planted fault: who is accused?

A server does things in an order: it reads the prompt, generates, lists logprobs, gives ids, then words, says why it
ended and counts, and last what reaches parity is text or ids. So each habit belongs to a `Stage`; a server has at most
one habit of each, and a set is applied in the order of stages. What no server can have together is in `CLASHES`.

An attempt is drawn from one number and is the same again from that number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations

from server_habits import FAULTS, HABITS, Pair, by_hand, drawn, plain, planted, turned
from worlds import FLAT, PEAKED, SURE, Shape

from parity.comparator import Comparison
from parity.records import Verdict


class Stage(IntEnum):
    """What a server does, one after the other."""

    PROMPT = 0
    """The prompt as it reads it."""
    LIMIT = 1
    """Where it has to stop."""
    VALUES = 2
    """What logprobs are of."""
    SENTINEL = 3
    UNIT = 4
    DIGITS = 5
    LISTED = 6
    """Which tokens a list names."""
    END = 7
    """Is the token that it stops at among the ids?"""
    SPAN = 8
    """Which tokens have a list."""
    ECHO = 9
    """The prompt before the ids."""
    WORDS = 10
    """Ids made into text."""
    ECHO_IN_WORDS = 11
    EDGES = 12
    """What the text begins and ends with."""
    STOP_REASON = 13
    """What it says that it stopped at."""
    REASON = 14
    COUNTS = 15
    TEXT = 16
    """Is there text?"""
    SAMPLES = 17
    IDS = 18
    """What parity makes of a text without ids."""
    PROMPT_GIVEN = 19
    """Does it say which prompt it read?"""


STAGES: Mapping[str, Stage] = {
    name: stage
    for stage, names in {
        Stage.PROMPT: (
            "begins_the_prompt_with_bos",
            "cuts_prompts_from_the_left",
            "cuts_prompts_and_begins_them_with_bos",
            "begins_prompts_with_bos_and_cuts_them",
        ),
        Stage.LIMIT: ("ends_at_its_context",),
        Stage.END: ("drops_the_eos", "drops_the_eos_but_its_logprobs", "counts_the_eos_in_its_usage"),
        Stage.ECHO: ("echoes_tokens",),
        Stage.WORDS: ("shows_special_tokens",),
        Stage.ECHO_IN_WORDS: ("echoes_text",),
        Stage.EDGES: (
            "strips_leading_blanks",
            "strips_trailing_blanks",
            "strips_both_ends",
            "begins_with_a_blank",
            "ends_with_a_line_feed",
        ),
        Stage.VALUES: ("gives_certain_logprobs", "gives_logprobs_at_another_temperature"),
        Stage.SENTINEL: (
            "says_9999_for_what_it_does_not_list",
            "gives_null_for_some_tokens",
            "gives_null_for_the_eos",
        ),
        Stage.UNIT: (
            "gives_probabilities",
            "gives_base_2_logprobs",
            "gives_base_10_logprobs",
            "gives_positive_logprobs",
        ),
        Stage.DIGITS: (
            "rounds_logprobs_to_two_places",
            "rounds_logprobs_to_one_place",
            "gives_logprobs_in_half_precision",
        ),
        Stage.LISTED: ("lists_fewer_than_asked", "lists_the_chosen_token_alone"),
        Stage.SPAN: (
            "gives_no_logprobs",
            "gives_logprobs_of_the_first_token",
            "gives_logprobs_but_for_the_first_token",
            "gives_the_prompts_logprobs_too",
        ),
        Stage.REASON: (
            "says_eos_token",
            "says_stop_sequence_and_max_tokens",
            "says_reasons_in_capitals",
            "says_reasons_in_camel_case",
            "says_reasons_that_nobody_knows",
            "says_empty_reasons",
            "says_no_finish_reason",
            "says_stop_always",
            "gives_no_reason_and_says_so",
        ),
        Stage.STOP_REASON: ("names_the_eos_as_what_it_stopped_at", "names_the_eos_in_words"),
        Stage.COUNTS: (
            "counts_no_eos",
            "counts_otherwise",
            "counts_with_another_tokenizer",
            "counts_the_prompt_too",
            "counts_reasoning_that_it_does_not_give",
            "counts_nothing",
            "says_it_read_less_of_the_prompt",
            "says_what_of_the_prompt_was_not_cached",
        ),
        Stage.TEXT: ("gives_no_text", "gives_empty_text"),
        Stage.SAMPLES: ("gives_fewer_samples_than_asked",),
        Stage.IDS: (
            "text_and_no_ids",
            "stripped_text_and_no_ids",
            "text_with_a_blank_and_no_ids",
            "scored_text_and_no_ids",
            "echoes_text_and_gives_no_ids",
            "echoes_stripped_text_and_gives_no_ids",
            "echoes_text_after_a_blank_and_gives_no_ids",
            "echoes_the_prompt_and_a_blank_and_gives_no_ids",
        ),
        Stage.PROMPT_GIVEN: ("reports_no_prompt",),
    }.items()
    for name in names
}

TURNED = frozenset(name for name in HABITS if name.startswith("baseline_"))
"""Habits of a baseline, which are those of a candidate with the arms the other way round."""

_ECHOES_WORDS = frozenset(name for name in STAGES if name.startswith("echoes_") and name != "echoes_tokens")
_MAKES_WORDS = frozenset(name for name in STAGES if STAGES[name] is Stage.IDS and name != "text_and_no_ids")

_TAKES_BLANKS_OFF = frozenset({"strips_leading_blanks", "strips_both_ends"})

CLASHES: Sequence[tuple[frozenset[str], frozenset[str], str]] = (
    (_ECHOES_WORDS | {"echoes_tokens"}, _ECHOES_WORDS | {"echoes_tokens"}, "one prompt before an output is enough"),
    (
        frozenset({"echoes_tokens"}),
        frozenset(name for name in STAGES if STAGES[name] is Stage.SPAN and name != "gives_no_logprobs"),
        "logprobs are of all tokens that it gives, those of the prompt among them, or of the output's",
    ),
    (
        frozenset({"echoes_tokens"}),
        frozenset({"reports_no_prompt"}),
        "an output that begins with the prompt reports it",
    ),
    (
        _TAKES_BLANKS_OFF,
        frozenset(name for name in _ECHOES_WORDS if STAGES[name] is Stage.IDS),
        "without its blank an output's first word would be one with the prompt's last",
    ),
    (
        frozenset({"gives_no_text", "gives_empty_text"}),
        _MAKES_WORDS,
        "where there is no text there is none to echo, nor a blank",
    ),
    (
        frozenset({"says_9999_for_what_it_does_not_list"}),
        frozenset(name for name in STAGES if STAGES[name] is Stage.UNIT),
        "the sentinel is one of logprobs to base e",
    ),
)
"""Habits that no server has together, and why."""

SERVERS_ALONE = frozenset(
    name
    for name in HABITS
    if name.endswith("no_ids")
    or name.startswith(("cuts_prompts", "begins_prompts_with_bos_and_cuts"))
    or name == "gives_logprobs_at_another_temperature"
)
"""Habits that a script of one's own has not: it has token ids and knows what it asked."""


def can_be(names: Sequence[str]) -> bool:
    """May one server have all of these?"""
    if len({STAGES[name] for name in names}) < len(names):
        return False
    pairs = (pair for two in combinations(names, 2) for pair in (two, two[::-1]))
    return not any(one in some and other in others for one, other in pairs for some, others, _ in CLASHES)


def server(pair: Pair, names: Sequence[str]) -> Pair:
    """The pair where the candidate has these habits, in the order of their stages."""
    for name in sorted(names, key=STAGES.__getitem__):
        pair = HABITS[name](pair)
    return pair


# ------------------------------------------------------------------ attempts

SHAPES: Mapping[str, Shape] = {"flat": FLAT, "peaked": PEAKED, "sure": SURE}
TEMPERATURES = (0.0, 0.0, 0.8, 1.0)
"""Of worlds; as many are greedy as drawn."""
WORLDS = 4
"""Seeds of worlds that the attempts of one thousand share: to make one takes longer than to compare it."""
ON_ONE_ARM = 0.4
"""Share of attempts that have all habits on one arm; as many have them on both, each arm its own or all of them."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One comparison of arms that are clean, or clean but for `fault`. world: as "flat 3 at 0.8", "" for the planted
    set's. by_script: no server is named; shown: tokens can be made text."""

    of_candidate: tuple[str, ...] = ()
    of_baseline: tuple[str, ...] = ()
    world: str = ""
    number: int = 0
    scored: bool = True
    by_script: bool = False
    shown: bool = True
    fault: str = ""

    def pair(self) -> Pair:
        made = self._arms()
        made = turned(server(turned(server(made, self.of_candidate)), self.of_baseline))
        if not self.scored:
            made = Pair(made.baseline, made.candidate, {}, made.faulty)
        return by_hand(made) if self.by_script else made

    def _arms(self) -> Pair:
        if self.fault:
            return planted(self.fault)
        if not self.world:
            return plain(seed=self.number % WORLDS)
        name, seed, _, temperature = self.world.split()
        return drawn(SHAPES[name], int(seed), temperature=float(temperature), scored=True)

    def __str__(self) -> str:
        arms = [f"{side}: {', '.join(names) or 'nothing'}" for side, names in
                (("candidate", self.of_candidate), ("baseline", self.of_baseline))]  # fmt: skip
        said = [self.world or "planted set", *([f"with {self.fault}"] if self.fault else ())]
        said += [word for word, is_so in (("unscored", not self.scored), ("by script", self.by_script),
                                          ("no tokenizer", not self.shown)) if is_so]  # fmt: skip
        return f"{self.number} ({', '.join(said)}) {'; '.join(arms)}"


def attempt(number: int, habits: int) -> Attempt:
    """Of so many habits, all drawn from the number."""
    rng = random.Random(f"habits {number} {habits}")
    of_candidate, of_baseline = _habits(rng, habits)
    where = rng.choice(["planted set", "planted fault", "world", "world"])
    world = ""
    if where == "world":
        seed = number // 1000 * WORLDS + rng.randrange(WORLDS)
        world = f"{rng.choice(list(SHAPES))} {seed} at {rng.choice(TEMPERATURES):g}"
    return Attempt(
        of_candidate,
        of_baseline,
        world,
        number,
        scored=rng.random() < 0.7,
        by_script=rng.random() < 0.4 and not SERVERS_ALONE & {*of_candidate, *of_baseline},
        shown=rng.random() < 0.7,
        fault=rng.choice(FAULTS) if where == "planted fault" else "",
    )


def _habits(rng: random.Random, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of candidate and baseline."""
    while True:
        names = rng.sample(sorted(STAGES), count)
        where = rng.random()
        if where < ON_ONE_ARM:
            sides = [names, []]
            rng.shuffle(sides)
        elif where < (1 + ON_ONE_ARM) / 2:
            cut = rng.randrange(1, count) if count > 1 else 1
            sides = [names[:cut], names[cut:]]
        else:
            sides = [names, names]
        if all(map(can_be, sides)):
            first, second = (tuple(sorted(side, key=STAGES.__getitem__)) for side in sides)
            return first, second


def attempts(first: int, count: int, habits: int) -> Iterator[Attempt]:
    return (attempt(number, habits) for number in range(first, first + count))


# ------------------------------------------------------------------ judging


@dataclass(frozen=True, slots=True)
class Answer:
    """What a comparison said of an attempt. accused: kinds of the findings that nobody should have, and "DIVERGED"
    where the verdict is that without any; missed: a PASS though the planted fault is not found."""

    attempt: Attempt
    verdict: Verdict
    accused: tuple[str, ...]
    missed: bool

    @property
    def bad(self) -> bool:
        return bool(self.accused) or self.missed


def answer(one: Attempt) -> Answer:
    pair = one.pair()
    result = pair.asked(with_text_check=one.shown)
    return Answer(one, result.verdict, _accused(result, pair), bool(pair.faulty) and result.verdict is Verdict.PASS)


def _accused(result: Comparison, pair: Pair) -> tuple[str, ...]:
    found = sorted({str(one.kind) for one in result.corrupt if pair.faulty is None or one.key != pair.faulty})
    if not found and pair.faulty is None and result.verdict is Verdict.DIVERGED:
        return ("DIVERGED",)
    return tuple(found)
