"""One arm of a plan, answered from a recording."""

from __future__ import annotations

import os
from typing import IO, Any, Optional, Union

from parity_backends.worker.asked import Churn, Item, Plan, Record, Request, Sampling
from parity_backends.worker.planned import PlannedArm, key_of
from parity_backends.worker.protocol import Stopped, serve
from parity_backends.worker.records import token_list
from parity_backends.worker.sampling import rows_of
from parity_backends.worker.sentences import Sentence, WorkerError, message

from .recording import Recording, arm_in, scores_of

UNSCORED = message("replay.no_score", "the recording has no score of this completion")


class ReplayArm(PlannedArm):
    """A recorded capture with a plan's requests. It answers what was asked then and nothing else."""

    def start(self) -> None:
        self.channel.event("starting", pid=os.getpid())
        self.recording = Recording(self.arm["engine"]["capture"])
        recorded = self.recording.header
        check_header(self.recording, self.plan)
        engine = dict(recorded.get("engine") or {})
        asked = engine.pop("asked", None) or {}
        if asked.get("speculative_config"):
            engine.setdefault("speculative_config", asked["speculative_config"])
        engine["asked"] = self.arm["engine"]
        header = self.header(
            vocab_size=recorded.get("vocab_size"),
            eos_token_ids=recorded.get("eos_token_ids"),
            engine=engine,
            environment=recorded.get("environment") or {},
            replayed={
                "arm": self.recording.arm,
                "backend": recorded.get("backend"),
                "variant": recorded.get("variant"),
                "asked": asked,
                "sha256": self.recording.digest(),
            },
        )
        for name in ("model_fingerprint", "served"):
            if recorded.get(name) is not None:
                header[name] = recorded[name]
        self.channel.event("ready", engine_start_seconds=0.0)
        self.channel.record(header)

    def generate(self, rounds: list[int]) -> None:
        done = 0
        for round_ in rounds:
            for request in self.plan["requests"]:
                if self.stop.is_set():
                    raise Stopped
                done += self._answer(request, round_)
        counters = dict(self.recording.counters or {})
        self.channel.record({"record": "footer", "completions": done, "scores": 0, "counters": counters})

    def _answer(self, request: Request, round_: int) -> int:
        found = answers(self.recording, self.plan, request, round_)
        for sample, record in found:
            self.channel.record(
                dict(
                    record,
                    round=round_,
                    sample=sample,
                    prompt_token_ids=token_list(record["prompt_token_ids"]),
                    token_ids=token_list(record["token_ids"]),
                )
            )
        return len(found)

    def trial(self, requests: list[Request], sampling: Sampling, churn: Optional[Churn] = None) -> None:
        raise WorkerError(
            message("replay.nothing_new", "a recording answers what was asked when it was made, nothing new")
        )

    def score(self, items: list[Item], top: int) -> int:
        """Scores that were recorded too; `unscored` for all others."""
        recorded = {
            arm["name"]: arm_in(arm["engine"]["capture"]) for arm in self.plan["arms"] if arm["engine"].get("capture")
        }
        scores = {**self.recording.scores, **scores_of(self.arm["engine"].get("scores"))}
        done = tokens = 0
        for item in items:
            key = key_of(item)
            place = (item["request"], item["round"], item["sample"])
            logprobs = scores.get((str(recorded.get(item["arm"])), place))
            if logprobs is None or not fits(logprobs, item["token_ids"]):
                self.channel.event("unscored", key=key, reason=UNSCORED)
                continue
            self.channel.record(dict(record="score", logprobs=[entry or [] for entry in logprobs], **key))
            done += 1
            tokens += len(logprobs)
        self.channel.event("scored", items=len(items), sequences=done, tokens=tokens)
        return done

    def close(self) -> None:
        """Nothing is open."""


def check_all(recording: Recording, plan: Plan) -> None:
    """Raises WorkerError for the first thing that a plan asks and the recording does not answer."""
    check_header(recording, plan)
    for round_ in range(int(plan.get("rounds") or 1)):
        for request in plan["requests"]:
            answers(recording, plan, request, round_)


def check_header(recording: Recording, plan: Plan) -> None:
    """Raises WorkerError where the recording is of another model or of other sampling parameters."""
    recorded = recording.header
    model = str(recorded.get("model") or "").rstrip("/").rpartition("/")[2]
    if model and model != plan["model"]["name"]:
        raise WorkerError(
            message(
                "replay.other_model",
                "{path} is a recording of the model {model!r}, the plan is for {wanted!r}",
                path=recording.path,
                model=model,
                wanted=plan["model"]["name"],
            )
        )
    _same(recording, plan, recorded.get("sampling") or {}, plan["sampling"], "")


def answers(recording: Recording, plan: Plan, request: Request, round_: int) -> list[tuple[int, Record]]:
    """The samples of a request that were recorded; one that is missing is missing from the capture: a finding.

    Raises WorkerError where none was, or another question was asked.
    """
    found = []
    for sample in range(int(plan["sampling"].get("n") or 1)):
        record = recording.completions.get((request["id"], round_, sample))
        if record is None:
            continue
        if token_list(record["prompt_token_ids"]) != request["prompt_token_ids"]:
            raise WorkerError(
                message(
                    "replay.other_prompt",
                    "{path} has another prompt for the request {request!r}",
                    path=recording.path,
                    request=request["id"],
                )
            )
        then = {**(recording.header.get("sampling") or {}), **(record.get("sampling") or {})}
        now = {**plan["sampling"], **(request.get("sampling") or {})}
        _same(recording, plan, then, now, message("replay.for_request", " for {request!r}", request=request["id"]))
        found.append((sample, record))
    if not found:
        raise WorkerError(
            message(
                "replay.nothing_for",
                "{path} has nothing for the request {request!r}, round {round}",
                path=recording.path,
                request=request["id"],
                round=round_,
            )
        )
    return found


def _same(recording: Recording, plan: Plan, then: Sampling, now: Sampling, where: Union[Sentence, str]) -> None:
    rows = rows_of(plan)
    for name, value in now.items():
        if name in then and rows.get(name, {}).get("compared", True) and then[name] != value:
            raise WorkerError(
                message(
                    "replay.other_sampling",
                    "{path} was recorded{where} with {name}={then}, the plan has {now}",
                    path=recording.path,
                    where=where,
                    name=name,
                    then=repr(then[name]),
                    now=repr(value),
                )
            )


def fits(logprobs: list[Any], token_ids: list[int]) -> bool:
    """Is this a score of these tokens: one entry for each, the token itself among those listed?"""
    return len(logprobs) == len(token_ids) and all(
        not entry or any(pair[0] == token for pair in entry)
        for entry, token in zip(logprobs, token_ids)  # noqa: B905 - strict is Python 3.10
    )


def supervised(stream: IO[bytes]) -> None:
    serve(stream, ReplayArm)
