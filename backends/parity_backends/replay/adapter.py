"""A recorded capture as a backend: yesterday's run, another host's, or the double of an engine in tests."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from parity.capture.shards import files_of, is_there
from parity.errors import ParityError
from parity.messages import Message, heard, message, shortened, verbatim
from parity.paths import expanded
from parity.run.backend import Detection, hint_for
from parity_backends.bundle import FIRST, bundle
from parity_backends.refusals import WithoutEngine, check_settings
from parity_backends.worker.sentences import WorkerError

if TYPE_CHECKING:
    from parity_backends.worker.asked import Plan

MODULES = (
    *FIRST,
    "parity.records:plan_digest",
    "parity.records:shard_counters",
    "parity_backends.worker:planned",
    "recording",
    "replay_arm",
)

SCORES = ("scores.jsonl", "scores.jsonl.gz")
"""Where a run directory has the scores, looked for beside the capture."""


OTHER_REQUESTS = message(
    "replay.own_prompts",
    "leave out --prompts, --suite, --rounds, --samples and sampling options: then the recording's own are taken",
)


class ReplayBackend(WithoutEngine):
    """Arms are capture files. No engine is started and none is imported."""

    name = "replay"
    variants: tuple[str, ...] = ("recorded",)
    takes_images = True
    loads_weights = False
    answers_anew = False
    hints: Mapping[str, Message] = {
        "replay.other_sampling": OTHER_REQUESTS,
        "replay.other_prompt": OTHER_REQUESTS,
        "replay.nothing_for": OTHER_REQUESTS,
        "replay.other_model": message("replay.own_model", "name the checkpoint of the recording with --model DIR"),
    }

    def default_model(self) -> Path | None:
        # The recording names its model; the worker refuses one of another.
        return Path(str(resources.files("parity").joinpath("models", "tiny-qwen3-next-mtp")))

    def arm_settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`capture` and `scores`, files or directories of shards, as absolute paths. Raises ParityError where there is
        no such file, and where one of the shards is missing or another."""
        check_settings(self.name, given, ("capture", "scores"))
        capture = given.get("capture")
        if not isinstance(capture, str) or not capture:
            raise ParityError(
                message("replay.no_capture", "backend 'replay' starts no engine: it needs a recorded capture"),
                hint=message("replay.name_it", "name it with --replay [NAME=]CAPTURE, once for each"),
            )
        path = expanded(capture).absolute()
        if not is_there(path):
            raise ParityError(
                message("replay.no_file", "there is no recording {path}", path=str(path)),
                hint=message("replay.give_a_file", "give a capture file, such as a run's base.jsonl"),
            )
        files_of(path)
        scores = given.get("scores")
        if scores is None:
            scores = next((str(path.with_name(name)) for name in SCORES if path.with_name(name).is_file()), None)
        elif not is_there(Path(str(scores))):
            raise ParityError(
                message("replay.no_scores", "there is no scores file {path}", path=str(scores)),
                hint=message("replay.without_scores", "leave it out to do without scores"),
            )
        else:
            files_of(Path(str(scores)))
        return {"capture": str(path), "scores": None if scores is None else str(Path(scores).absolute())}

    def check_answers(self, settings: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
        """Raises ParityError where the recording has no answer to what is asked, as the worker would once it runs."""
        from parity_backends.replay.worker.recording import Recording
        from parity_backends.replay.worker.replay_arm import check_all

        try:
            check_all(Recording(settings["capture"]), cast("Plan", plan))
        except WorkerError as error:
            said = heard(error.said, shortened) or verbatim(str(error))
            raise ParityError(said, hint=hint_for(self, said)) from None

    def engine_defaults(self, variant: str, *, num_speculative_tokens: int) -> dict[str, Any]:
        return {}

    def detect(self) -> Detection:
        return Detection(
            True, (message("replay.named", "nothing to look for: a recording is named by its file (--replay CAPTURE)"),)
        )

    def worker_source(self) -> bytes:
        return bundle("parity_backends.replay.worker", MODULES)
