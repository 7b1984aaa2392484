"""What a plan allows an arm to say: a far host is not trusted to keep to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec
import orjson

from parity.messages import message
from parity.plan import Plan
from parity.records import Header, Key, ScoreKey, check_shape
from parity.records.depth import is_shallow
from parity.records.plan_digest import plan_digest
from parity.run.messages import Completion, ProtocolError, Round, Score, TopOfEach, Unscored

MAX_SERVER_BYTES = 16 << 10
"""Of what an adapter keeps of each answer's surroundings (id, model, counts)."""


MORE_SAMPLES = 16
"""Samples that a server may give beside those asked for: that is found and said, and more is no answer."""

MORE_TOKENS, LEAST_TOKENS = 4, 1024
"""An engine that runs on beyond its limit is found; one that says this many times as much is no engine."""

LEAST_BYTES, BYTES_OF_TOKEN, BYTES_OF_LOGPROB = 1 << 18, 128, 64
"""Of a completion's line: a token as its id, its text and its part of a trace; a logprob with its id."""


def _check_object(what: str, said: Mapping[str, msgspec.Raw] | msgspec.UnsetType | None) -> None:
    """Raises ProtocolError for what is too long to be kept with each completion, or too deep."""
    if not isinstance(said, Mapping):
        return
    if sum(map(len, map(bytes, said.values()))) > MAX_SERVER_BYTES:
        raise ProtocolError(
            message("run.long_object", "{what} is longer than {size} KiB", what=what, size=MAX_SERVER_BYTES >> 10)
        )
    if not all(is_shallow(orjson.loads(bytes(value))) for value in said.values()):
        raise ProtocolError(message("run.too_deep", "{what}: nested too deeply", what=what))


def _check_lists(what: str, lists: TopOfEach) -> None:
    """Raises ProtocolError for lists of logprobs that would take the room of far more than there are."""
    widths = list(map(len, lists))
    try:
        check_shape(len(lists), max(widths, default=0), sum(widths))
    except ValueError as error:
        raise ProtocolError(message("run.wrong_field", "{what}: {said}", what=what, said=str(error))) from None


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plan allows an arm to produce."""

    arm: str
    requests: Mapping[str, int]
    """The tokens of each: of its prompt, and those that it may say."""
    rounds: int
    n: int
    lists: int = 0
    """Logprobs that are asked for beside the chosen token's."""

    @staticmethod
    def of(plan: Plan, arm: str) -> Expected:
        most = plan.sampling.max_tokens
        sizes = {one.id: len(one.prompt_token_ids) + min(one.max_tokens or most, most) for one in plan.requests}
        return Expected(arm, sizes, plan.rounds, plan.sampling.n, max(0, plan.sampling.logprobs or 0))

    @property
    def completions(self) -> int:
        return len(self.requests) * self.rounds * self.n

    def keys_of_round(self, round_: int) -> set[Key]:
        return {Key(request, round_, sample) for request in self.requests for sample in range(self.n)}

    def check_completion(self, completion: Completion, rounds: Collection[int]) -> Completion:
        """The completion, which belongs to one of `rounds`. Raises ProtocolError."""
        if completion.request not in self.requests or completion.round not in rounds:
            raise ProtocolError(
                message("run.stranger", "a completion that the plan does not have: {key}", key=str(completion.key))
            )
        if completion.sample >= self.n + MORE_SAMPLES:
            raise ProtocolError(
                message(
                    "run.sample_beyond", "sample {sample} where {n} are asked for", sample=completion.sample, n=self.n
                )
            )
        for what, said in (("server", completion.server), ("sampling", completion.sampling)):
            _check_object(what, said)
        _check_lists("logprobs", completion.logprobs or [])
        return completion

    def check_size(self, completion: Completion, size: int) -> None:
        """Raises ProtocolError for a completion whose line is far longer than any of its request could be."""
        tokens = self.requests[completion.request] * MORE_TOKENS + LEAST_TOKENS
        most = LEAST_BYTES + tokens * (BYTES_OF_TOKEN + BYTES_OF_LOGPROB * (self.lists + 1))
        if size > most:
            raise ProtocolError(
                message("run.long_completion", "a completion of {size} bytes, {most} at most", size=size, most=most)
            )


def check_header(header: Header, arm: str, plan: Plan) -> Header:
    """The header, of this arm; the worker must have got this plan and found this checkpoint. Raises ProtocolError."""
    if header.arm != arm:
        raise ProtocolError(message("run.other_arm", "a header of arm {arm}", arm=repr(header.arm)))
    digest = header.plan_digest
    if digest is not None and digest != plan_digest(plan.to_json()):
        raise ProtocolError(
            message(
                "run.other_plan",
                "the worker works on another plan than the one it was sent ({digest}…)",
                digest=str(digest)[:16],
            )
        )
    here, there = plan.model.fingerprint, header.model_fingerprint
    differ = [part for part, expected in here.items() if there.get(part) != expected] if there else []
    if differ:
        raise ProtocolError(
            message(
                "run.other_checkpoint",
                "its checkpoint is not the plan's {model}: {parts} differ",
                model=repr(plan.model.name),
                parts=differ,
            )
        )
    return header


def check_round(done: Round, rounds: Collection[int]) -> Round:
    """The counters of a round that was asked for. Raises ProtocolError."""
    if done.round not in rounds:
        raise ProtocolError(
            message("run.other_round", "the end of round {round}, which was not asked for", round=done.round)
        )
    return done


def check_score(score: Score, wanted: Mapping[ScoreKey, int]) -> Score:
    """A score that was asked for (`wanted`: output tokens by key). Raises ProtocolError."""
    named = f"{score.arm} {Key(*score.key[1:])}"
    if score.key not in wanted:
        raise ProtocolError(message("run.unasked_score", "a score that nobody asked for: {named}", named=named))
    if len(score.logprobs) != wanted[score.key]:
        raise ProtocolError(
            message(
                "run.score_length",
                "a score of {found} entries for {expected} tokens: {named}",
                found=len(score.logprobs),
                expected=wanted[score.key],
                named=named,
            )
        )
    _check_lists(named, score.logprobs)
    if score.logsumexp and len(score.logsumexp) != len(score.logprobs):
        raise ProtocolError(
            message(
                "run.logsumexp_length",
                "{found} values of logsumexp for {expected} tokens: {named}",
                found=len(score.logsumexp),
                expected=len(score.logprobs),
                named=named,
            )
        )
    return score


def check_unscored(said: Unscored, wanted: Collection[ScoreKey]) -> Unscored:
    """An item that was asked for. Raises ProtocolError."""
    if said.key not in wanted:
        raise ProtocolError(message("run.unasked_unscored", "unscored: nobody asked for {key}", key=str(said.key)))
    return said
