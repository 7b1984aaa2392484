"""What a plan allows an arm to say: a far host is not trusted to keep to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from parity.messages import message
from parity.plan import Plan
from parity.records import Header, Key, ScoreKey
from parity.records.plan_digest import plan_digest
from parity.run.messages import Completion, ProtocolError, Round, Score, Unscored

MAX_SERVER_BYTES = 16 << 10
"""Of what an adapter keeps of each answer's surroundings (id, model, counts)."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plan allows an arm to produce."""

    arm: str
    requests: frozenset[str]
    rounds: int
    n: int

    @staticmethod
    def of(plan: Plan, arm: str) -> Expected:
        return Expected(arm, frozenset(request.id for request in plan.requests), plan.rounds, plan.sampling.n)

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
        if completion.server and sum(map(len, map(bytes, completion.server.values()))) > MAX_SERVER_BYTES:
            raise ProtocolError(
                message("run.long_server", "server is longer than {size} KiB", size=MAX_SERVER_BYTES >> 10)
            )
        return completion


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
