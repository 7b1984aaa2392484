"""Completions teacher-forced on an arm's engine, into a scores file."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from parity.capture.sketches import SketchesBlock, SketchesHeader, SketchesStopped
from parity.messages import message, short_json, words_heard
from parity.records import Header, Json, Key, ScoreKey
from parity.run.appending import Appender
from parity.run.commands import Teacher
from parity.run.events import Phase
from parity.run.expected import check_score, check_unscored
from parity.run.failures import Doing
from parity.run.items import ScoreItem, chunks
from parity.run.link import Link
from parity.run.messages import Footer, FromWorker, ProtocolError, Score, Scored, Unscored, count, line_of
from parity.run.resume import Held
from parity.run.sketching import SketchesFile
from parity.run.words import one_line

SAID_UNSCORED = 3
"""A server without prompt_logprobs scores nothing at all: not a line for each."""

Refusal = tuple[str, str, int, int, Json]
"""An item that the engine could not take, and why: arm, request, round, sample, what the worker said."""

MOST_SAID = 300
"""Characters of why an item was not scored."""


class Scoring:
    """One attempt at what is missing of the scores."""

    def __init__(self, link: Link, held: Held, missing: Sequence[ScoreItem], top: int, path: Path) -> None:
        """Raises RefusedFile where what an earlier attempt left beside the scores is no sketches of the plan's."""
        self._link, self._held, self._top = link, held, top
        self._lengths = {item.key: len(item.token_ids) for item in missing}
        self._refused: dict[ScoreKey, Refusal] = {
            ScoreKey(*entry[:4]): tuple(entry) for entry in held.counters.get("unscored_items", [])
        }
        self._done = set(held.scores)
        self._sequences = count(held.counters.get("sequences"))
        self._tokens = 0
        self._repeated = 0
        self._waiting: list[deque[list[ScoreItem]]] = [deque() for _ in range(link.replicas)]
        for number, chunk in enumerate(chunks(missing, link.replicas)):
            self._waiting[number % link.replicas].append(chunk)
        self._busy = [replica for replica, queue in enumerate(self._waiting) if queue]
        self._sketches = SketchesFile(path, link.plan, resumed=held.header is not None)

    def run(self, header: Header, total: int, path: Path) -> None:
        link, began = self._link, time.monotonic()
        self._scores = scores = Appender(path, keep_bytes=self._held.end)
        try:
            if self._held.header is None:
                scores.add(line_of(header))
            link.enter(Phase.SCORING, len(self._done), total, 0)
            for replica in self._busy:
                self._ask(replica)
            while self._busy:
                link.listen_to(self._busy)
                link.checked(self._take, link.receive(Doing.SCORING))
            if len(self._refused) > SAID_UNSCORED:
                more = len(self._refused) - SAID_UNSCORED
                link.say(message("run.more_unscored", "{arm}: not scored: {more} more", arm=link.name, more=more))
            counters = {
                "sequences": self._sequences,
                "scored_tokens": self._tokens,
                "score_seconds": round(time.monotonic() - began, 3),
                "unscored": len(self._refused),
                "unscored_items": list(self._refused.values()),
                "top": self._top,
            }
            scores.add(line_of(Footer(completions=0, scores=len(self._done), counters=counters)))
        finally:
            scores.close()
            self._sketches.close()

    def _ask(self, replica: int) -> None:
        self._link.send(replica, Teacher(self._waiting[replica].popleft(), self._top))

    def _take(self, said: FromWorker) -> None:
        link = self._link
        if isinstance(said, Score):
            score = link.checked(check_score, said, self._lengths)
            if score.key not in self._done:
                self._scores.add(line_of(score))
                self._done.add(score.key)
                link.advance(1, self._lengths[score.key])
            else:
                self._repeat()
        elif isinstance(said, Unscored):
            self._refuse(link.checked(check_unscored, said, self._lengths))
        elif isinstance(said, Scored):
            self._sequences += count(said.sequences)
            self._tokens += count(said.tokens)
            if self._waiting[link.speaker]:
                self._ask(link.speaker)
            else:
                self._busy.remove(link.speaker)
        elif isinstance(said, SketchesHeader | SketchesBlock | SketchesStopped):
            self._sketches.add(said, link.speaker)
        else:
            link.event(said)

    def _repeat(self) -> None:
        self._repeated += 1
        if self._repeated > len(self._lengths):
            raise ProtocolError(message("run.repeated_scores", "the same scores again and again"))

    def _refuse(self, said: Unscored) -> None:
        key, why = said.key, words_heard(said.reason, lambda text: one_line(text)[:MOST_SAID])
        if key in self._refused:
            self._repeat()
            return
        self._refused[key] = (*key, short_json(why))
        if len(self._refused) <= SAID_UNSCORED:
            self._link.say(
                message(
                    "run.unscored",
                    "{arm}: not scored: {of} {key}: {why}",
                    arm=self._link.name,
                    of=key.arm,
                    key=str(Key(*key[1:])),
                    why=why,
                )
            )
