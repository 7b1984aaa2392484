"""Grammar of small numbers: of one there is one, in every message that there is."""

from __future__ import annotations

import re
import string
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parity.messages import Message, message
from parity.plurals import ADJECTIVES, NOUNS, VERBS, agreeing
from parity.records import words
from parity.records.kinds import CLAIMS, Family

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

from messages import everything  # type: ignore[import-not-found]  # noqa: E402 - a tool, not a package

PLURAL = re.compile(rf"(?<![\d.,-])1 (?:(?:{'|'.join(ADJECTIVES)}) )*({'|'.join(NOUNS)})\b(?!')")
"""A one, and a plural after it."""

OF_SEVERAL = (*VERBS, "break", "go", "they", "them", "their")
STAYS = re.compile(
    rf"(?<![\d.,-])1 (?:(?:{'|'.join(ADJECTIVES)}) )*(?:{'|'.join(NOUNS.values())})\b[^.,;:()]*?"
    rf"(?<!1 )(?<!may )(?<!can )(?<!cannot )(?<!not )(?<!should )\b({'|'.join(OF_SEVERAL)})\b"
)
"""A one, and in the same clause a verb or a pronoun of several."""

ALL_OF_ONE = re.compile(rf"\b(all|these|those|both|first) 1 (?:{'|'.join([*ADJECTIVES, *NOUNS.values()])})\b")

NOT_OF_THE_ONE = {
    "beneath.drafter_in_part": "in part",
    "conclude.own_residuals": "logprobs",
    "conclude.residuals": "logprobs",
    "conclude.unjudged_lists": "scores",
    "kind.claim.engine": "steps",
    "kind.claim.logprob_mismatch": "logprobs",
    "numerics.spots_by_context": "logits",
    "report.measured.block": "three or more",
    "report.measured.length": "two or more",
    "report.measured.length.from": "two or more",
    "report.measured.length.to": "two or more",
    "report.measured.place": "three or more",
    "row_leak.as_well_more": "the tokens",
    "row_leak.crossed_logprobs": "logprobs",
    "transformers.too_long": "two numbers",
    "vllm.does_not_fit": "two numbers",
}
"""Messages in which such a word speaks of something else, or that are never of one: why."""


def of_one(english: str, plural: str | None) -> str | None:
    """The sentence with 1 in the place of every number; None where a field takes no number."""
    names = {name for _, name, _, _ in string.Formatter().parse(english) if name}
    if any(not name.isidentifier() for name in names):
        return None
    try:
        return str(Message("test", english, dict.fromkeys([*names, "count"], 1), plural))
    except (ValueError, TypeError):
        return None


def test_no_message_says_one_of_several() -> None:
    found = everything([])
    assert len(found) > 1000
    wrong = {}
    for id_, one in found.items():
        text = of_one(one.english, one.plural)
        bad = PLURAL.findall(text or "")
        if bad:
            wrong[id_] = (bad, text)
    assert not wrong


def test_no_verb_and_no_pronoun_speaks_of_one_as_of_several() -> None:
    found = everything([])
    texts = {id_: of_one(one.english, one.plural) or "" for id_, one in found.items()}
    wrong = {id_: text for id_, text in texts.items() if STAYS.search(text) or ALL_OF_ONE.search(text)}
    assert {id_: text for id_, text in wrong.items() if id_ not in NOT_OF_THE_ONE} == {}
    assert set(NOT_OF_THE_ONE) == set(wrong)  # each of them is needed


@pytest.mark.parametrize(
    ("template", "parameters", "said"),
    [
        ("{a} of {b} completions are corrupt", {"a": 1, "b": 4}, "1 of 4 completions is corrupt"),
        ("{a} of {b} completions are corrupt", {"a": 1, "b": 1}, "1 of 1 completion is corrupt"),
        ("{a} of {b} completions are corrupt", {"a": 2, "b": 4}, "2 of 4 completions are corrupt"),
        ("{a} of {b} choices that tell say so", {"a": 1, "b": 4}, "1 of 4 choices that tell says so"),
        ("{a} of {b} choices that tell say so", {"a": 1, "b": 1}, "1 of 1 choice that tells says so"),
        ("{n} tokens of the baseline are missing", {"n": 1}, "1 token of the baseline is missing"),
        ("the same {n} prompts (token ids) were run", {"n": 1}, "the same 1 prompt (token ids) was run"),
        ("{n} corrupt, {m} part", {"n": 1, "m": 1}, "1 corrupt, 1 parts"),
        ("{n} completions of {arm} part", {"n": 1, "arm": "cpu/mtp"}, "1 completion of cpu/mtp parts"),
        ("{n} tokens of {m} completions", {"n": 1, "m": 1}, "1 token of 1 completion"),
        ("{n} completions that differ", {"n": 1}, "1 completion that differs"),
        ("{n:,} draft tokens", {"n": 1}, "1 draft token"),
        ("takes {n} completions", {"n": "1"}, "takes 1 completion"),
        ("{n} tokens", {"n": True}, "True tokens"),
        ("{n} tokens' text", {"n": 1}, "1 tokens' text"),
        ("{{n}} tokens", {"n": 1}, "{n} tokens"),
        ("{least} to {most} rows", {"least": 1, "most": 3}, "1 to 3 rows"),
        ("{n:.1f} tokens", {"n": 1.0}, "1.0 tokens"),
        ("{n} of {n} greedy choices are right", {"n": 1}, "1 of 1 greedy choice is right"),
        ("{a} of {b} greedy choices are right", {"a": 0, "b": 1}, "0 of 1 greedy choice is right"),
        ("more than {n:g} nats", {"n": 1.0}, "more than 1 nat"),
        ("{n:.3g} nats, {n:.2f} nats", {"n": 0.25}, "0.25 nats, 0.25 nats"),
    ],
)
def test_nouns_and_verbs_agree_with_their_number(template: str, parameters: dict[str, Any], said: str) -> None:
    assert agreeing(template, parameters).format(**parameters) == said


def test_counts_as_parameters() -> None:
    for make, noun in ((words.completions, "completion"), (words.tokens, "token"), (words.requests, "request")):
        assert (str(make(1)), str(make(2)), str(make(0))) == (f"1 {noun}", f"2 {noun}s", f"0 {noun}s")
    assert str(message("test.of", "{tokens} of {all}", tokens=words.tokens(1), all=words.completions(2))) == (
        "1 token of 2 completions"
    )


@pytest.mark.parametrize("family", CLAIMS)
def test_a_report_claims_of_one_completion_in_the_singular(family: Family) -> None:
    said = str(replace(CLAIMS[family], parameters={"count": 1, "completions": 64}))
    assert not re.search(r"\b(they|their|them)\b", said)
    assert not re.match(r"1 of 64 completions (end|break|answer|hold|part|are) ", said)


SINGULAR = (
    "agrees allows begins belongs breaks compares completes counts differs diverges does ends exists explains fails "
    "fills finds gives has holds is knows lacks leaves lists makes names needs passes refuses reports says sees serves "
    "sets speculates stands supports takes was writes as its this Conditions invariants"
)
"""Words that end in s and follow a field as its verb, are no noun, or of which there is never one."""


def test_every_noun_that_follows_a_number_is_known() -> None:
    """A plural that is not among NOUNS would stay one beside a 1."""
    field = r"(?<!\{)\{(\w+)(?:![rsa])?(?::[^{}]*)?\}"
    after = re.compile(rf"{field} (?:(?:{'|'.join(ADJECTIVES)}) )*([a-zA-Z-]*[^su'\W]s)\b(?!')")
    strays: dict[str, set[str]] = {}
    for id_, one in everything([]).items():
        for name, noun in after.findall(one.english) if one.plural is None else ():
            if noun not in NOUNS and noun not in SINGULAR.split():
                strays.setdefault(noun, set()).add(f"{id_}: {name}")
    assert not strays
