"""One arm, from spawning its engine to the last record of its capture."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from parity.errors import ParityError
from parity.messages import Message, Say
from parity.plan import Arm, Plan
from parity.plan.hosts import Host
from parity.records import Json, Key, ScoreKey
from parity.run import messages, resume
from parity.run.backend import Backend, load_backend
from parity.run.counting import add_counters
from parity.run.events import OnEvent, Phase, ignore
from parity.run.failures import Timeouts
from parity.run.items import ScoreItem, chunks, unscored_entry
from parity.run.link import Link
from parity.run.pool import merged_counters

SAID_UNSCORED = 3
"""A server without prompt_logprobs scores nothing at all: not a line for each."""


def say_to_stderr(line: Message | str) -> None:
    print(line, file=sys.stderr, flush=True)


class ArmSession:
    """Runs one arm of a plan. Made by `run_arm`; the engine starts at the first call that needs it."""

    def __init__(self, plan: Plan, arm: Arm, capture_path: Path, link: Link) -> None:
        self.plan = plan
        self.arm = arm
        self.name = arm.name
        self.capture_path = capture_path
        self.link = link
        self._expected = messages.Expected.of(plan, self.name)
        self._of_replica = [messages.Expected.of(part, self.name) for part in link.plans]

    @property
    def header(self) -> dict[str, Json] | None:
        """The engine's header, once it has started."""
        return self.link.header

    def generate(self) -> None:
        """Run all rounds of the plan into the capture file, or what is missing of them.

        A capture with a footer is left as it is and no engine starts. Raises BackendError (engine),
        ParityError (capture file), Interrupted.
        """
        held = resume.read_held(self.capture_path)
        resume.check_same_plan(held, self.plan, self.arm, self.capture_path)
        link = self.link
        if held.complete:
            link.enter(Phase.DONE, len(held.completions), self._expected.completions, held.tokens)
            return
        header = self._started(len(held.completions), self._expected.completions, held.tokens)
        if held.header is not None:
            resume.check_same_engine(held.header, header, self.capture_path)
        with link.guarded():
            self._generate(held, header)
        link.enter(Phase.DONE, link.done, link.total, link.tokens)

    def score(self, items: Sequence[ScoreItem], scores_path: Path, *, top: int = 5) -> None:
        """Teacher-force `items` on this arm into `scores_path`, or what is missing of them there.

        Each distinct sequence is computed once. Items that the engine cannot take (longer than
        max_model_len, ids outside the vocabulary) are named in the footer's counters as `unscored`.
        Raises BackendError, ParityError, Interrupted.
        """
        if self.arm.engine.get("speculative_config"):
            raise ParityError(
                f"{self.name} cannot score: it has speculation on", hint="score on the baseline, a base arm"
            )
        held = resume.read_held(scores_path)
        resume.check_same_plan(held, self.plan, self.arm, scores_path)
        refused = {ScoreKey(*entry[:4]) for entry in _counters(held).get("unscored_items", [])}
        wanted = {item.key: item for item in items}
        missing = [item for key, item in wanted.items() if key not in held.scores and key not in refused]
        link = self.link
        if held.complete and not missing:
            link.enter(Phase.DONE, len(held.scores), len(wanted), 0)
            return
        header = self._started(len(held.scores), len(wanted), 0)
        if held.header is not None:
            resume.check_same_engine(held.header, header, scores_path)
        with link.guarded():
            self._score(held, header, missing, len(wanted), scores_path, top)
        link.enter(Phase.DONE, link.done, link.total, link.tokens)

    def _started(self, done: int, total: int, tokens: int) -> dict[str, Json]:
        """The engine's header; starts it, and says so, unless it is up."""
        if self.link.header is None:
            self.link.enter(Phase.STARTING, done, total, tokens)
        return self.link.start()

    def close(self) -> None:
        """End the engine, orderly where it goes along; safe to call again."""
        self.link.close()

    def kill(self) -> None:
        """End the engine at once."""
        self.link.kill()

    # ------------------------------------------------------------------ stages

    def _generate(self, held: resume.Held, header: dict[str, Json]) -> None:
        link = self.link
        rounds = self._rounds(held)
        fresh: dict[Key, resume.Kept] = {}
        replayed: dict[Key, bool] = {}
        repeated = 0
        counted: set[tuple[int, int]] = set()
        said: dict[int, dict[str, Json]] = {}
        capture = resume.Appender(self.capture_path, keep_bytes=held.end)
        try:
            if held.header is None:
                capture.add(header)
            link.enter(Phase.GENERATING, len(held.completions), self._expected.completions, held.tokens)
            for replica, wanted in rounds.items():
                link.send(replica, {"op": "generate", "rounds": wanted})
            link.listen_to(list(rounds))
            while rounds.keys() - said.keys():
                message = link.receive("generating")
                replica = link.speaker
                kind = message.get("record")
                if kind == "completion":
                    key, record = link.checked(
                        messages.check_completion, message, self._of_replica[replica], rounds[replica]
                    )
                    if key in held.completions and key not in replayed:
                        replayed[key] = held.completions[key].digest == resume.digest(record["token_ids"])
                    elif key in held.completions or key in fresh:
                        repeated += 1
                    else:
                        if link.replicas > 1:
                            record["replica"] = replica
                        capture.add(record)
                        fresh[key] = kept = resume.keep(record)
                        link.advance(1, kept.tokens)
                elif kind == "round":
                    number, mine = link.checked(messages.check_round, message, rounds[replica])
                    if (number, replica) not in held.rounds and (number, replica) not in counted:
                        counted.add((number, replica))
                        capture.add({"record": "round", "round": number, "replica": replica, "counters": mine})
                elif kind == "footer":
                    said[replica] = link.checked(messages.check_counters, message)
                    link.listen_to([number for number in rounds if number not in said])
                else:
                    link.event(message)
            counters = merged_counters([said[replica] for replica in sorted(said)])
            if repeated:
                counters["repeated_completions"] = repeated
            if held.header is not None:
                self._add_earlier(counters, held, rounds)
                counters["replay_differences"] = sum(1 for same in replayed.values() if not same)
            if link.replicas > 1:
                counters["replicas"] = [said.get(replica) for replica in range(link.replicas)]
            tokens = sum(kept.tokens for kept in fresh.values())
            seconds = counters.get("generate_seconds")
            if isinstance(seconds, int | float) and seconds > 0:
                timed = messages.count(counters.get("tokens"))
                counters["tokens_per_second"] = round(timed / seconds, 1)
            counters["tokens"] = held.tokens + tokens
            total = len(held.completions) + len(fresh)
            capture.add({"record": "footer", "completions": total, "scores": 0, "counters": counters})
        finally:
            capture.close()

    def _rounds(self, held: resume.Held) -> dict[int, list[int]]:
        """What each replica has to run: rounds with something missing; the last where all is there but the footer."""
        missing = {replica: held.missing_rounds(expected, replica) for replica, expected in enumerate(self._of_replica)}
        missing = {replica: rounds for replica, rounds in missing.items() if rounds}
        return missing or {replica: [self._expected.rounds - 1] for replica in range(self.link.replicas)}

    def _add_earlier(self, counters: dict[str, Json], held: resume.Held, again: Mapping[int, Sequence[int]]) -> None:
        """Add what the rounds that were not run again had contributed: their own counters, else what the
        completions tell."""
        for number in range(self._expected.rounds):
            told = []
            for replica, expected in enumerate(self._of_replica):
                if number not in again.get(replica, ()):
                    mine = held.rounds.get((number, replica))
                    told.append(mine or _told_by_completions(counters, held, expected.keys_of_round(number)))
            if told:
                add_counters(counters, merged_counters(told))  # replicas work side by side: their seconds do not add up
        counters["resumed_completions"] = len(held.completions)

    def _score(
        self,
        held: resume.Held,
        header: dict[str, Json],
        missing: Sequence[ScoreItem],
        total: int,
        path: Path,
        top: int,
    ) -> None:
        link = self.link
        lengths = {item.key: len(item.token_ids) for item in missing}
        unscored: list[list[Json]] = list(_counters(held).get("unscored_items", []))
        refused = {tuple(entry[:4]) for entry in unscored}
        done = set(held.scores)
        sequences = tokens = 0
        began = time.monotonic()
        waiting: list[deque[list[ScoreItem]]] = [deque() for _ in range(link.replicas)]
        for number, chunk in enumerate(chunks(missing, link.replicas)):
            waiting[number % link.replicas].append(chunk)
        busy = [replica for replica, queue in enumerate(waiting) if queue]
        scores = resume.Appender(path, keep_bytes=held.end)
        try:
            if held.header is None:
                scores.add(header)
            link.enter(Phase.SCORING, len(done), total, 0)
            for replica in busy:
                link.send(replica, _score_command(waiting[replica].popleft(), top))
            while busy:
                link.listen_to(busy)
                message = link.receive("scoring")
                if message.get("record") == "score":
                    key, record = link.checked(messages.check_score, message, lengths)
                    if key not in done:
                        scores.add(record)
                        done.add(key)
                        link.advance(1, lengths[key])
                elif message.get("event") == "unscored":
                    entry = link.checked(unscored_entry, message, lengths)
                    if tuple(entry[:4]) in refused:
                        continue
                    refused.add(tuple(entry[:4]))
                    unscored.append(entry)
                    if len(unscored) <= SAID_UNSCORED:
                        link.say(f"{self.name}: not scored: {entry[0]} {Key(*entry[1:4])}: {entry[4]}")
                elif message.get("event") == "scored":
                    sequences += messages.count(message.get("sequences"))
                    tokens += messages.count(message.get("tokens"))
                    if waiting[link.speaker]:
                        link.send(link.speaker, _score_command(waiting[link.speaker].popleft(), top))
                    else:
                        busy.remove(link.speaker)
                else:
                    link.event(message)
            if len(unscored) > SAID_UNSCORED:
                link.say(f"{self.name}: not scored: {len(unscored) - SAID_UNSCORED} more")
            counters: dict[str, Json] = {
                "sequences": sequences + messages.count(_counters(held).get("sequences")),
                "scored_tokens": tokens,
                "score_seconds": round(time.monotonic() - began, 3),
                "unscored": len(unscored),
                "unscored_items": unscored,
                "top": top,
            }
            scores.add({"record": "footer", "completions": 0, "scores": len(done), "counters": counters})
        finally:
            scores.close()


def _score_command(chunk: Sequence[ScoreItem], top: int) -> dict[str, Json]:
    return {"op": "score", "items": [item.to_json() for item in chunk], "top": top}


def _counters(held: resume.Held) -> Mapping[str, Json]:
    return (held.footer or {}).get("counters") or {}


def _told_by_completions(counters: Mapping[str, Json], held: resume.Held, keys: set[Key]) -> dict[str, Json]:
    """Of the counters there are, those that completions in the file tell by themselves."""
    earlier = [held.completions[key] for key in keys if key in held.completions]
    told = {
        "drafts": sum(kept.drafts for kept in earlier),
        "draft_tokens": sum(kept.draft_tokens for kept in earlier),
        "accepted_tokens": sum(kept.accepted_tokens for kept in earlier),
        "generation_tokens": sum(kept.tokens for kept in earlier),
    }
    return {name: value for name, value in told.items() if name in counters}


@contextmanager
def run_arm(
    plan: Plan,
    arm_name: str,
    capture_path: Path,
    log_path: Path,
    *,
    on_event: OnEvent = ignore,
    say: Say = say_to_stderr,
    resume: bool = False,
    timeouts: Timeouts | None = None,
    stop: threading.Event | None = None,
    backend: Backend | None = None,
    host: Host | None = None,
) -> Iterator[ArmSession]:
    """A session for the arm called `arm_name` of a plan.

    Without `resume` an existing capture is refused; with it, a complete one is left alone and an
    unfinished one continued. `say` takes lines for the user, `stop` ends the run like Ctrl-C does,
    `backend` replaces the installed adapter, `host` says where the engine runs (default: here). The engine
    has ended when the block is left. Raises ParityError for what the caller got wrong and BackendError for
    everything else.
    """
    arm = next((arm for arm in plan.arms if arm.name == arm_name), None)
    if arm is None:
        known = ", ".join(arm.name for arm in plan.arms)
        raise ParityError(f"the plan has no arm {arm_name!r}", hint=f"it has {known}")
    if not resume and capture_path.exists() and capture_path.stat().st_size:
        raise ParityError(f"{capture_path} exists already", hint="continue it with --resume, or move it away")
    link = Link(
        plan,
        arm,
        log_path,
        backend=load_backend(arm.backend) if backend is None else backend,
        host=host or Host(arm_name.partition("/")[0], arm.backend),
        on_event=on_event,
        say=say,
        timeouts=timeouts or Timeouts(),
        stop=stop,
    )
    session = ArmSession(plan, arm, capture_path, link)
    try:
        yield session
    except BaseException:
        session.kill()
        raise
    session.close()
