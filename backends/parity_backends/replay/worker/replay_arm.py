"""One arm of a plan, answered from a recording."""

from __future__ import annotations

import os
from typing import IO, Any, Optional, Union

from parity_backends.worker.asked import Churn, Item, Record, Request, Sampling
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
        self._check(recorded)
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

    def _check(self, recorded: Record) -> None:
        """Raises WorkerError where the recording is of another model or of other sampling parameters."""
        path, plan = self.recording.path, self.plan
        model = str(recorded.get("model") or "").rstrip("/").rpartition("/")[2]
        if model and model != plan["model"]["name"]:
            raise WorkerError(
                message(
                    "replay.other_model",
                    "{path} is a recording of the model {model!r}, the plan is for {wanted!r}",
                    path=path,
                    model=model,
                    wanted=plan["model"]["name"],
                )
            )
        self._same(recorded.get("sampling") or {}, plan["sampling"], "")

    def _same(self, then: Sampling, now: Sampling, where: Union[Sentence, str]) -> None:
        rows = rows_of(self.plan)
        for name, value in now.items():
            if name in then and rows.get(name, {}).get("compared", True) and then[name] != value:
                raise WorkerError(
                    message(
                        "replay.other_sampling",
                        "{path} was recorded{where} with {name}={then}, the plan has {now}",
                        path=self.recording.path,
                        where=where,
                        name=name,
                        then=repr(then[name]),
                        now=repr(value),
                    )
                )

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
        found = 0
        for sample in range(int(self.plan["sampling"].get("n") or 1)):
            record = self.recording.completions.get((request["id"], round_, sample))
            if record is None:
                continue  # it is missing from the recording, and so from the capture: a finding
            prompt = token_list(record["prompt_token_ids"])
            if prompt != request["prompt_token_ids"]:
                raise WorkerError(
                    message(
                        "replay.other_prompt",
                        "{path} has another prompt for the request {request!r}",
                        path=self.recording.path,
                        request=request["id"],
                    )
                )
            then = {**(self.recording.header.get("sampling") or {}), **(record.get("sampling") or {})}
            self._same(
                then,
                {**self.plan["sampling"], **(request.get("sampling") or {})},
                message("replay.for_request", " for {request!r}", request=request["id"]),
            )
            token_ids = token_list(record["token_ids"])
            self.channel.record(dict(record, round=round_, sample=sample, prompt_token_ids=prompt, token_ids=token_ids))
            found += 1
        if not found:
            raise WorkerError(
                message(
                    "replay.nothing_for",
                    "{path} has nothing for the request {request!r}, round {round}",
                    path=self.recording.path,
                    request=request["id"],
                    round=round_,
                )
            )
        return found

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


def fits(logprobs: list[Any], token_ids: list[int]) -> bool:
    """Is this a score of these tokens: one entry for each, the token itself among those listed?"""
    return len(logprobs) == len(token_ids) and all(
        not entry or any(pair[0] == token for pair in entry)
        for entry, token in zip(logprobs, token_ids)  # noqa: B905 - strict is Python 3.10
    )


def supervised(stream: IO[bytes]) -> None:
    serve(stream, ReplayArm)
