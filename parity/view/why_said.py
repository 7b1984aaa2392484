"""What `parity why` says of an arm, in sentences: the same for the terminal, reports and the triage interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from parity.explain.association import SURE, Association
from parity.explain.hypotheses import Form
from parity.explain.predicates import PREDICATES
from parity.messages import Message, message, verbatim
from parity.view.why import QUIET, Why

SHOWN: Final = 5
"""Hypotheses that are shown."""

LEAST: Final = 1e-300
"""The least p-value that is said as it is."""

NAMED: Final = 4
"""Others that the data cannot tell from one, which are named."""


def said(one: Why, shown: int = SHOWN) -> list[Message]:
    """First what was asked, then the hypotheses best first, then what cannot be known.

    Beside one that is sure, others of which chance gives as much say nothing.
    """
    found = one.associated
    ranked = [each for each in found.ranked if each.adjusted < SURE or not found.sure]
    first = (
        message(
            "why.logprobs",
            "{arm}: {faults} of {row_steps} row-steps have a logprob that is more than {nats:.2g} nats off its score, "
            "not counting the {quiet} row-steps after such a one; {asked} conditions were asked",
            arm=one.arm,
            faults=found.faults,
            row_steps=found.row_steps,
            nats=one.nats,
            quiet=QUIET,
            asked=found.asked,
        )
        if one.nats is not None
        else message(
            "why.faults",
            "{arm}: {faults} faults among {row_steps} row-steps; {asked} conditions were asked",
            arm=one.arm,
            faults=found.faults,
            row_steps=found.row_steps,
            asked=found.asked,
        )
    )
    return [first, *(sentence(one, each) for each in ranked[:shown]), *unknown(one)]


def sentence(one: Why, each: Association) -> Message:
    """Of one hypothesis: counts, share, odds and p, and what these data cannot separate from it."""
    found = one.associated
    numbers: dict[str, Any] = {
        "with_fault": each.with_fault,
        "faults": found.faults,
        "part": _part(each.row_steps / max(1, found.row_steps)),
        "odds": each.odds,
        "p": f"< {LEAST:g}" if each.p < LEAST else f"= {each.p:.1g}",
        "adjusted": f"< {LEAST:g}" if each.adjusted < LEAST else f"{each.adjusted:.1g}",
        "others": _same(each),
    }
    names = [condition(name) for name in each.names]
    if each.form is Form.BOTH:
        return message(
            "why.both",
            "{with_fault} of {faults}: {first}, and {second}; so are {part} of all row-steps (odds ratio "
            "{odds:,.1f}, p {p}, corrected {adjusted}){others}",
            first=names[0], second=names[1], **numbers,
        )  # fmt: skip
    if each.form is Form.EITHER:
        return message(
            "why.either",
            "two causes: {with_fault} of {faults}: {first}, or {second}; so are {part} of all row-steps (odds "
            "ratio {odds:,.1f}, p {p}, corrected {adjusted}){others}",
            first=names[0], second=names[1], **numbers,
        )  # fmt: skip
    return message(
        "why.condition",
        "{with_fault} of {faults}: {condition}; so are {part} of all row-steps (odds ratio {odds:,.1f}, "
        "p {p}, corrected {adjusted}){others}",
        condition=names[0],
        **numbers,
    )


def _part(share: float) -> str:
    """Of what is rare not 0.0%, which would be of none."""
    return f"{100 * share:.1g}%" if 0 < share < 0.0005 else f"{share:.1%}"


def unknown(one: Why) -> Iterator[Message]:
    """What these faults are too few to say."""
    found = one.associated
    if not found.sure and found.needed is not None:
        yield message(
            "why.needed",
            "that is too little to know: it takes {needed} faults, all with the first of these",
            needed=found.needed,
        )
        if found.reach * found.row_steps < 1:
            yield message(
                "why.nothing",
                "{faults} faults can show nothing for sure here, whatever the condition (p below {sure})",
                faults=found.faults,
                sure=SURE,
            )
            return
        yield message(
            "why.reach",
            "{faults} faults can show only what holds of fewer than {reach:.1%} of the row-steps (p below {sure})",
            faults=found.faults,
            reach=found.reach,
            sure=SURE,
        )
    elif found.ranked and not found.sure and found.ranked[0].with_fault == found.faults:
        yield message(
            "why.rare",
            "that is too little to know: all faults have the first of these, and so few row-steps do that it takes a "
            "run with more of them",
        )
    elif not found.sure:
        yield message("why.none", "none of these conditions explains the faults")
    elif not one.telling:
        yield message(
            "why.everywhere",
            "none of these need be the cause: numbers that are wrong everywhere show more under some conditions than "
            "under others",
        )
    if one.unplaced:
        yield message("why.unplaced", "of {number} completions no recorded step made the token", number=one.unplaced)


def condition(name: str) -> Message:
    """What a predicate says, by its name."""
    return next((one.said for one in PREDICATES if one.name == name), verbatim(name))


def _same(each: Association) -> Message | str:
    if not each.same:
        return ""
    others = [
        condition(names[0])
        if len(names) == 1
        else message("why.two", "{first} + {second}", first=condition(names[0]), second=condition(names[1]))
        for names in each.same
    ]
    if len(others) > NAMED:
        return message(
            "why.same_and_more",
            "; these data cannot tell it from: {others}, and {more} more",
            others=others[:NAMED],
            more=len(others) - NAMED,
        )
    return message("why.same", "; these data cannot tell it from: {others}", others=others)
