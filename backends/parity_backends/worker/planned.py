"""What the arms of all backends do alike: their place in the plan, the header's first keys, trials, what to score."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from parity.records.plan_digest import plan_digest

from .asked import Churn, Item, Plan, Record, Request, Sampling
from .protocol import SCHEMA, Channel
from .sentences import Sentence, WorkerError, message

Tokens = tuple[tuple[int, ...], tuple[int, ...]]
"""Token ids of a prompt and of its completion."""


class PlannedArm:
    """One arm of a plan, and the plan's requests."""

    def __init__(self, plan: Plan, name: str, channel: Channel, stop: threading.Event) -> None:
        arms = {arm["name"]: arm for arm in plan["arms"]}
        if name not in arms:
            raise WorkerError(
                message("worker.no_arm", "the plan has no arm {name!r}; it has {arms}", name=name, arms=", ".join(arms))
            )
        self.plan, self.arm, self.channel, self.stop = plan, arms[name], channel, stop
        self.requests = plan["requests"]

    def header(self, **found: Any) -> Record:
        """The first record of the capture: what the plan says, and what was `found`."""
        model = self.plan["model"]
        return {
            "record": "header",
            "schema": SCHEMA,
            "arm": self.arm["name"],
            "backend": self.arm["backend"],
            "variant": self.arm["variant"],
            "model": model["name"],
            "vocab_size": model.get("vocab_size"),
            "eos_token_ids": model.get("eos_token_ids"),
            "sampling": self.plan["sampling"],
            "plan_digest": plan_digest(self.plan),
            **found,
        }

    def generate(self, rounds: list[int]) -> None:
        raise NotImplementedError

    def trial(self, requests: list[Request], sampling: Sampling, churn: Optional[Churn] = None) -> None:
        """One round of other requests, sampling parameters and churn on the engine that is up."""
        planned = self.plan, self.requests
        self.plan, self.requests = {**self.plan, "sampling": sampling, "churn": churn or {}}, requests
        try:
            self.generate([0])
        finally:
            self.plan, self.requests = planned

    def to_score(
        self, items: list[Item], why_not: Callable[[Item], Optional[Sentence]]
    ) -> tuple[dict[Tokens, list[Record]], int]:
        """The keys of each distinct sequence, and how many items are done already: one without tokens needs no engine.

        Of what cannot be scored it is said why.
        """
        sequences: dict[Tokens, list[Record]] = {}
        done = 0
        for item in items:
            key = key_of(item)
            reason = why_not(item)
            if reason is not None:
                self.channel.event("unscored", key=key, reason=reason)
            elif not item["token_ids"]:
                self.channel.record(dict(record="score", logprobs=[], **key))
                done += 1
            else:
                sequence = (tuple(item["prompt_token_ids"]), tuple(item["token_ids"]))
                sequences.setdefault(sequence, []).append(key)
        return sequences, done


def key_of(item: Item) -> Record:
    return {"arm": item["arm"], "request": item["request"], "round": item["round"], "sample": item["sample"]}
