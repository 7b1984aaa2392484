"""All rounds of an arm into its capture, or what is missing of them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

import msgspec

from parity.capture.sketches import SketchesBlock, SketchesHeader, SketchesStopped
from parity.capture.steps import StepsBlock, StepsHeader, StepsStopped, steps_path
from parity.messages import message
from parity.records import Header, Key
from parity.records.recording import RING
from parity.run.appending import Appender
from parity.run.beside import StepsAllowed
from parity.run.commands import Generate
from parity.run.counting import Counters, added, of_replicas
from parity.run.events import Phase
from parity.run.expected import Expected, check_round
from parity.run.failures import Doing
from parity.run.link import Link
from parity.run.messages import Completion, Footer, FromWorker, ProtocolError, Round, count, line_of
from parity.run.resume import Held, Kept, digest, keep
from parity.run.ringing import Recorded, RingFile, kept_steps
from parity.run.sketching import SketchesFile

REPEATED = 100
"""Completions that a worker may give a second time, and once more for each that it gave: that is counted and found."""


class Generation:
    """One attempt at an arm's rounds. `expected` is what each replica is to give."""

    def __init__(self, link: Link, held: Held, expected: Sequence[Expected], path: Path) -> None:
        """Raises RefusedFile where what an earlier attempt left beside the capture are none of the plan's."""
        self._link, self._held, self._expected = link, held, expected
        self._rounds = _missing(held, expected)
        self._fresh: dict[Key, Kept] = {}
        self._replayed: dict[Key, bool] = {}
        self._repeated = 0
        self._counted = set(held.rounds)
        self._ended: set[tuple[int, int]] = set()
        self._done: dict[int, Counters] = {}
        self._path = path
        self._steps: Appender | RingFile | None = None
        self._recorded, self._allowed = Recorded(), StepsAllowed(link.plan)
        resumed = held.header is not None
        self._keep = kept_steps(steps_path(path), link.plan) if resumed and link.plan.record else 0
        self._sketches = SketchesFile(path, link.plan, resumed=resumed)

    def run(self, header: Header) -> None:
        link, held = self._link, self._held
        total = sum(expected.completions for expected in self._expected)
        self._capture = capture = Appender(self._path, keep_bytes=held.end)
        try:
            if held.header is None:
                capture.add(line_of(header))
            link.enter(Phase.GENERATING, len(held.completions), total, held.tokens)
            for replica, wanted in self._rounds.items():
                link.send(replica, Generate(wanted))
            link.listen_to(list(self._rounds))
            while self._rounds.keys() - self._done.keys():
                link.checked(self._take, link.receive(Doing.GENERATING))
            if isinstance(self._steps, RingFile):
                link.checked(self._steps.end)
            completions = len(held.completions) + len(self._fresh)
            capture.add(line_of(Footer(completions=completions, scores=0, counters=link.checked(self._counters))))
        finally:
            capture.close()
            self._sketches.close()
            if self._steps is not None:
                self._steps.close()

    def _take(self, said: FromWorker) -> None:
        link, replica = self._link, self._link.speaker
        if isinstance(said, Completion):
            check = self._expected[replica].check_completion
            self._completion(link.checked(check, said, self._rounds[replica]), replica)
        elif isinstance(said, Round):
            done = link.checked(check_round, said, self._rounds[replica])
            if (done.round, replica) in self._ended:
                raise ProtocolError(message("run.round_twice", "round {round} ended twice", round=done.round))
            self._ended.add((done.round, replica))
            if isinstance(self._steps, RingFile):
                self._steps.pause(replica)
            if (done.round, replica) not in self._counted:
                self._counted.add((done.round, replica))
                self._capture.add(line_of(msgspec.structs.replace(done, replica=replica)))
                self._capture.sync()
        elif isinstance(said, Footer):
            self._done[replica] = said.counters
            link.listen_to([number for number in self._rounds if number not in self._done])
        elif isinstance(said, StepsHeader | StepsBlock | StepsStopped):
            if not link.plan.record:
                raise ProtocolError(message("run.unasked_steps", "steps that nobody asked for"))
            self._record(said, replica)
        elif isinstance(said, SketchesHeader | SketchesBlock | SketchesStopped):
            self._sketches.add(said, replica)
        else:
            link.event(said)

    def _record(self, said: StepsHeader | StepsBlock | StepsStopped, replica: int) -> None:
        """What the flight recorder saw, into the file beside the capture; that of an interrupted run is added to."""
        if self._steps is None:
            path = steps_path(self._path)
            plan, keep = self._link.plan, self._keep
            ring = plan.record == RING
            self._steps = RingFile(path, keep_bytes=keep, plan=plan) if ring else Appender(path, keep_bytes=keep)
        line = line_of(msgspec.structs.replace(said, replica=replica))
        self._allowed.take(said, len(line))
        if isinstance(self._steps, RingFile):
            self._steps.add(said, replica)
        else:
            self._recorded.check(said, replica)
            self._steps.add(line)

    def _completion(self, completion: Completion, replica: int) -> None:
        key, earlier = completion.key, self._held.completions.get(completion.key)
        if earlier is not None and key not in self._replayed:
            self._replayed[key] = earlier.digest == digest(completion.token_ids)
        elif earlier is not None or key in self._fresh:
            self._repeated += 1
            if self._repeated > REPEATED + len(self._fresh):
                raise ProtocolError(message("run.repeated", "the same completions again and again"))
        else:
            shared = self._link.replicas > 1
            line = line_of(msgspec.structs.replace(completion, replica=replica) if shared else completion)
            self._expected[replica].check_size(completion, len(line))
            self._capture.add(line)
            self._fresh[key] = keep(completion)
            self._link.advance(1, self._fresh[key].tokens)

    # ------------------------------------------------------------------ counters

    def _counters(self) -> Counters:
        """Of this attempt and those before it."""
        held, replicas = self._held, self._link.replicas
        counters = of_replicas([self._done[replica] for replica in sorted(self._done)])
        if self._repeated:
            counters["repeated_completions"] = self._repeated
        if held.header is not None:
            counters = reduce(added, self._earlier(counters), counters)
            counters["resumed_completions"] = len(held.completions)
            counters["replay_differences"] = sum(1 for same in self._replayed.values() if not same)
        if replicas > 1:
            counters["replicas"] = [self._done.get(replica) for replica in range(replicas)]
        seconds = counters.get("generate_seconds")
        if isinstance(seconds, int | float) and seconds > 0:
            counters["tokens_per_second"] = round(count(counters.get("tokens")) / seconds, 1)
        counters["tokens"] = held.tokens + sum(kept.tokens for kept in self._fresh.values())
        return counters

    def _earlier(self, named: Counters) -> list[Counters]:
        """What the rounds that were not run again had contributed: their own counters, else, of those that are
        `named`, what the completions tell. Replicas work side by side: their seconds do not add up."""
        rounds = []
        for number in range(self._expected[0].rounds):
            known = [
                self._held.rounds.get((number, replica)) or self._of_completions(expected.keys_of_round(number), named)
                for replica, expected in enumerate(self._expected)
                if number not in self._rounds.get(replica, ())
            ]
            rounds += [of_replicas(known)] if known else []
        return rounds

    def _of_completions(self, keys: set[Key], named: Mapping[str, object]) -> Counters:
        earlier = [self._held.completions[key] for key in keys if key in self._held.completions]
        known = {
            "drafts": sum(kept.drafts for kept in earlier),
            "draft_tokens": sum(kept.draft_tokens for kept in earlier),
            "accepted_tokens": sum(kept.accepted_tokens for kept in earlier),
            "generation_tokens": sum(kept.tokens for kept in earlier),
        }
        return {name: value for name, value in known.items() if name in named}


def _missing(held: Held, expected: Sequence[Expected]) -> dict[int, list[int]]:
    """What each replica has to run: rounds with something missing; the last where all is there but the footer."""
    missing = {replica: held.missing_rounds(of_replica, replica) for replica, of_replica in enumerate(expected)}
    missing = {replica: rounds for replica, rounds in missing.items() if rounds}
    return missing or {replica: [of_replica.rounds - 1] for replica, of_replica in enumerate(expected)}
