"""The search for a smaller case: grow from the request that was found, then shrink what fails.

A rare fault hits now and then, whatever the batch. So "fails" cannot mean "fails as often as the whole plan did": a
case with a sixteenth of the rows and half of the tokens has fewer chances per shot, and is better for it. What counts
is what it costs to see the failure. A case fails often enough when enough rounds of it to reach the goal (0.95) fit
into the budget, in tokens: that gives the probability per shot that the oracle asks about.

Growing before shrinking: shots of the whole batch are the slowest there are, and where the fault needs one row or two,
the first guess (the request of the finding, then the donors that it names, then its neighbours, doubled until it
fails) needs none of them. ddmin then makes it 1-minimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from parity.errors import BackendError
from parity.messages import Message, Say, message, verbatim
from parity.plan import Request, Sampling
from parity.plan.churn import Churn
from parity.reduce.case import Case, Setup
from parity.reduce.ddmin import ddmin
from parity.reduce.oracle import Decision, Oracle, OutOfTime
from parity.reduce.sequential import Question, certain, clopper_pearson, per_round
from parity.reduce.tried import DOES_NOT_FAIL, FAILS, Step, shots_said, untried

FEWEST_ROUNDS, MOST_ROUNDS = 20, 60
"""A reduced plan repeats its round at most MOST_ROUNDS times (a failure in twenty rounds or so is the rarest worth
having), and may do so FEWEST_ROUNDS times whatever the budget."""

APART = 4.0
"""p1 / p0: how far "often enough" and "too rarely" lie apart. Wider is cheaper and leaves more to chance between."""

GLANCE = 16
"""Up to this many requests, one shot is taken before any question is asked."""

OFTEN = 0.3
"""Share of the shots that must fail for shorter outputs to be worth trying."""

WORTH = 0.75
"""Share of a round's tokens that shorter prompts may leave, where a failure is rare: asking costs dozens of shots."""

MOST_ENDED = 8
"""Cases that end the engine before the search does not go on: each costs a start, and it may be the engine's habit."""

SHORTEST_PROMPT = 2
"""Tokens. vLLM 0.32.0 garbles one-token prompts beside speculative rows (docs/fault-lab.md): a reduction that cut
down to one would slip from the fault it was given to that one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What the reduced plan is to be like."""

    probability: float = 0.95
    """That the plan fails, all of its rounds together."""
    tokens: int = 4096
    """That its rounds together may take, prompts included."""
    alpha: float = 0.05
    beta: float = 0.05

    def rounds(self, case: Case) -> int:
        return max(FEWEST_ROUNDS, min(MOST_ROUNDS, self.tokens // max(1, case.tokens)))

    def question(self, case: Case) -> Question:
        p1 = per_round(self.probability, self.rounds(case))
        return Question(p1 / APART, p1, self.alpha, self.beta)


@dataclass(slots=True)
class Found:
    """What the search has come to so far. `case` is None until something smaller than the plan has failed."""

    case: Case | None = None
    deterministic: bool = False
    share: float = 0.0
    """Of the shots of the decision that `case` rests on, how many failed. They chose it, so this is too high."""
    at_least: float = 0.0
    """The lower end of the 95 % interval of that share."""
    kinds: tuple[str, ...] = ()
    out_of_time: bool = False
    order_matters: bool | None = None
    steps: list[Step] = field(default_factory=list)


class Search:
    """Looks for a smaller case that fails on one setup."""

    def __init__(
        self,
        oracle: Oracle,
        original: Case,
        setup: Setup,
        *,
        goal: Goal,
        first: Sequence[str] = (),
        one_shot: bool = True,
        say: Say = lambda line: None,
    ) -> None:
        """`first`: ids of the requests to begin with, the likeliest first. `one_shot`: what has failed a few times in
        a row with the same output is taken to do so always, and one shot is an answer from then on."""
        self._oracle, self._original, self._setup, self._goal, self._say = oracle, original, setup, goal, say
        self._first, self._one_shot = first, one_shot
        self._ended = 0
        self.found = Found()

    def run(self) -> Found:
        """Grow, then shrink in every way. Raises BackendError and Interrupted; time that runs out is no error."""
        try:
            self._grow()
            if self.found.case is not None:
                self._shrink()
        except OutOfTime:
            self.found.out_of_time = True
            self._say(message("reduce.time_spent_far", "the time is spent: this is as far as it went"))
        return self.found

    def grow(self) -> Found:
        """The smallest batch around the first requests that fails, and no further. Raises OutOfTime."""
        self._grow()
        return self.found

    # ------------------------------------------------------------------ asking

    def _fails(self, case: Case, what: Message) -> bool:
        """Does it fail often enough? Where it does, it is the best so far."""
        found = self.found
        question = certain(self._goal.alpha, self._goal.beta) if found.deterministic else self._goal.question(case)
        decision = self._oracle.decide(case, self._setup, question)
        if decision.unresolved:
            self._untried(case, what, decision, decision.unresolved)
            return False
        self._note(what, decision)
        if not decision.fails:
            return False
        if decision.repeats and self._one_shot and not found.deterministic:
            found.deterministic = True
            self._say(
                message(
                    "reduce.fails_each_time",
                    "it fails each time with the same output: one shot is an answer from here on",
                )
            )
        found.case, found.share = case, decision.failures / decision.shots
        found.at_least, _ = clopper_pearson(decision.failures, decision.shots)
        found.kinds = tuple(sorted({*found.kinds, *decision.kinds}))
        return True

    def _untried(self, case: Case, what: Message, decision: Decision, why: Message) -> None:
        """A case that ends the engine is passed over, as none that fails. Raises BackendError where the engine does
        not start, ends too often, or takes not even the whole plan."""
        self._ended += 1
        whole = self.found.case is None and len(case.requests) == len(self._original.requests)
        if not decision.of_case or whole or self._ended >= MOST_ENDED:
            raise BackendError(
                why,
                hint=message(
                    "reduce.log_beside_notebook", "its log is beside the notebook; the same command tries again"
                ),
            )
        self.found.steps.append(Step(str(what), False, decision.shots, decision.failures, str(why)))
        self._say(shots_said(what, untried(why), decision))

    def _note(self, what: Message, decision: Decision) -> None:
        self.found.steps.append(Step(str(what), decision.fails, decision.shots, decision.failures))
        answer = FAILS if decision.fails else DOES_NOT_FAIL
        self._say(shots_said(what, answer, decision))

    # ------------------------------------------------------------------ requests

    def _grow(self) -> None:
        """The likeliest requests, doubled until they fail; at last all of them.

        First with a single shot at each size: what fails every time shows itself at once, where asking whether a
        smaller case fails now and then would take many.
        """
        ranked = self._ranked()
        sizes = [1]
        while sizes[-1] < len(ranked):
            sizes.append(min(2 * sizes[-1], len(ranked)))
        cases = {size: self._first_ones(ranked[:size]) for size in sizes}
        quick = [size for size in sizes if size <= GLANCE]
        for size in quick:
            if self._oracle.glance(cases[size], self._setup) and self._fails(cases[size], _requests(size)):
                return
        for size in sizes:
            if self._fails(cases[size], _requests(size)):
                return

    def _first_ones(self, chosen: Sequence[Request]) -> Case:
        names = {request.id for request in chosen}
        return self._original.with_requests([r for r in self._original.requests if r.id in names])

    def _ranked(self) -> list[Request]:
        """The named ones first, then by their distance in the batch from the first of them."""
        requests = self._original.requests
        place = {request.id: index for index, request in enumerate(requests)}
        named = [requests[place[name]] for name in dict.fromkeys(self._first) if name in place]
        centre = place[named[0].id] if named else 0
        rest = sorted(
            (request for request in requests if request not in named),
            key=lambda request: (abs(place[request.id] - centre), place[request.id]),
        )
        return [*named, *rest]

    # ------------------------------------------------------------------ shrinking

    def _shrink(self) -> None:
        self._without_churn()
        self._fewer_requests()
        self._plainer_sampling()
        self._shorter_outputs()
        self._shorter_prompts()
        self._any_order()

    def _best(self) -> Case:
        assert self.found.case is not None
        return self.found.case

    def _without_churn(self) -> None:
        if self._best().churn != Churn():
            self._fails(replace(self._best(), churn=Churn()), message("reduce.at_once", "all requests at once"))

    def _fewer_requests(self) -> None:
        case = self._best()
        if len(case.requests) > 1:
            ddmin(case.requests, lambda part: self._fails(case.with_requests(part), _requests(len(part))))

    def _plainer_sampling(self) -> None:
        """Each parameter back to its plain value: all at once, else as few kept as will do."""
        case, plain = self._best(), Sampling()
        special = [
            row.name
            for row, value in case.sampling
            if row.name not in ("max_tokens", "seed", "skip_special_tokens", "stop_token_ids") and value != row.default
        ]

        def keeping(names: Sequence[str]) -> Case:
            values = {name: plain.value(name) for name in special if name not in names}
            if values.get("temperature") == 0:  # greedy: several samples would be the same
                values["n"] = 1
            return replace(case, sampling=case.sampling.having(values))

        if not special or self._fails(keeping(()), message("reduce.greedy", "greedy sampling, no penalties")):
            return
        ddmin(special, lambda names: self._fails(keeping(names), _sampling(names)))

    def _shorter_outputs(self) -> None:
        """max_tokens halved as long as that fails; then, where it always fails, to the token.

        What fails in few shots only is left alone: half of the tokens would want twice the rounds.
        """
        low = 0
        while (limit := self._best().sampling.max_tokens) > 1 and self.found.share >= OFTEN:
            case = self._limited(limit // 2)
            if not self._fails(case, verbatim(f"max_tokens {limit // 2}")):
                low = limit // 2
                break
        if not self.found.deterministic:
            return
        high = self._best().sampling.max_tokens
        while high - low > 1:
            middle = (low + high) // 2
            if self._fails(self._limited(middle), verbatim(f"max_tokens {middle}")):
                high = middle
            else:
                low = middle

    def _limited(self, limit: int) -> Case:
        case = self._best()
        requests = tuple(
            replace(r, max_tokens=None if r.max_tokens is None or r.max_tokens >= limit else r.max_tokens)
            for r in case.requests
        )
        sampling = replace(case.sampling, max_tokens=limit, min_tokens=min(case.sampling.min_tokens, limit))
        return replace(case, requests=requests, sampling=sampling)

    def _shorter_prompts(self) -> None:
        """All prompts cut to their last tokens at once; then, where it always fails, token by token."""
        longest = max(len(request.prompt_token_ids) for request in self._best().requests)
        length = 4
        while length < longest:
            case = self._best()
            cut = case.with_requests([_cut(r, r.prompt_token_ids[-length:]) for r in case.requests])
            if self.found.share < OFTEN and cut.tokens > WORTH * case.tokens:
                break
            if self._fails(cut, message("reduce.prompts", "prompts of {length} tokens", length=length)):
                break
            length *= 4
        if self.found.deterministic:
            for index in range(len(self._best().requests)):
                self._thin_prompt(index)

    def _thin_prompt(self, index: int) -> None:
        case = self._best()
        request = case.requests[index]

        def fails(tokens: list[int]) -> bool:
            if len(tokens) < SHORTEST_PROMPT:
                return False
            thinner = [_cut(r, tuple(tokens)) if i == index else r for i, r in enumerate(case.requests)]
            what = message("reduce.prompt", "{request} with {n} prompt tokens", request=request.id, n=len(tokens))
            return self._fails(case.with_requests(thinner), what)

        ddmin(request.prompt_token_ids, fails)

    def _any_order(self) -> None:
        """The other way round: whether the order matters is worth knowing, and what does not matter is not kept."""
        case = self._best()
        if len(case.requests) < 2:
            return
        kept = self.found.case, self.found.share, self.found.at_least
        fails = self._fails(
            case.with_requests(case.requests[::-1]), message("reduce.reversed", "the requests in reverse order")
        )
        self.found.order_matters = not fails
        self.found.case, self.found.share, self.found.at_least = kept  # it is a question, not a simplification


def _requests(count: int) -> Message:
    return message("reduce.count_requests", "{count} request", plural="{count} requests", count=count)


def _sampling(names: Sequence[str]) -> Message:
    return message("reduce.only_sampling", "only {names} of the sampling", names=list(names))


def _cut(request: Request, tokens: Sequence[int]) -> Request:
    """The request with part of its prompt; the text no longer fits and goes."""
    if len(tokens) == len(request.prompt_token_ids) or len(tokens) < SHORTEST_PROMPT:
        return request
    return replace(request, prompt=None, prompt_token_ids=tuple(tokens))
