"""The flight recorder: what the host knows of every engine step, in blocks of the steps file.

What both of vLLM's model runners have in common is here: the scheduler's output before a step, what the caller gets
after it, requests, blocks, the header. `first_runner.py` and `second_runner.py` read at the doors of their runner, and
`recording.py` chooses. Methods are wrapped on the instances that the engine calls, outside whatever else wrapped them.

A recorder that fails stops and says so; the engine goes on.
"""

from __future__ import annotations

import sys
import time
import traceback
from itertools import chain
from operator import attrgetter
from typing import Any, Callable, Optional

from parity.capture.step_table import COLUMN_BY_NAME, STEPS_SCHEMA, split_name
from parity_backends.worker.copies import StepCopies
from parity_backends.worker.sentences import Sentence, message

from .host_copies import block_size, sequence_lengths
from .step_blocks import StepBlocks, Write
from .step_requests import Named, Said, said_in
from .step_sight import Sight, held


class Unrecordable(Exception):
    """Why nothing can be recorded of this engine."""

    def __init__(self, said: Sentence) -> None:
        super().__init__(said["text"])
        self.said = said


BOUNDED_STEPS = 8
"""So many steps in a row the longest request of a batch that stays as it is is not looked for anew."""


def unknown_metadata(given: Any) -> Sentence:
    return message("unseen.metadata", "metadata of {kind}", kind=type(given).__name__)


def nothing_kept() -> Sentence:
    return message("unseen.nothing_kept", "no speculation, or no recurrent layers")


REQUEST_ID, FINISH_REASON, TOKENS = map(attrgetter, ("request_id", "finish_reason", "new_token_ids"))


class Recorder:
    """Records the steps of one engine in this process, while `on`. One class for each model runner."""

    needs: tuple[str, ...] = ()
    """Attributes of the model runner without which nothing can be recorded."""
    how = ""

    def __init__(
        self, runner: Any, scheduler: Any, write: Write, arm: str, named: Named, with_states: bool = False
    ) -> None:
        """`scheduler`: None where it is in another process. `write` takes records of the steps file. `with_states`:
        recurrent states are digested too."""
        self.runner, self.scheduler = runner, scheduler
        self.arm, self.named = arm, named
        self.on = False
        self.stopped = False
        self.sight: Optional[Sight] = None
        self.output: Any = None
        self.waiting: list[tuple[Any, Sight]] = []
        """Steps whose tokens the caller has not got yet, by what was scheduled."""
        self.unseen: dict[str, Sentence] = {}
        """Columns that could not be seen, and why."""
        self.doors: list[tuple[Any, str]] = []
        self.groups = list(runner.attn_groups)
        self.sizes = [block_size(runner, group) for group in range(len(self.groups))]
        self.kinds = ["unknown"] * len(self.groups)
        self.with_states = with_states
        self.states: dict[int, Any] = {}
        """By cache group its `StateDigests`; None where there are none."""
        config = getattr(getattr(runner, "vllm_config", None), "scheduler_config", None)
        self.asynchronous = bool(getattr(config, "async_scheduling", False))
        """The scheduler asks for a step before it has the tokens of the one before."""
        if self.asynchronous and runner.speculative_config is not None:  # put right on the device alone
            self.unseen["computed"] = message(
                "unseen.counted_ahead", "asynchronous scheduling: drafts count as accepted until it is known"
            )
        if scheduler is None:
            why = message("unseen.other_process", "the scheduler is in another process")
            self.unseen.update(dict.fromkeys(("given", "finish", "waiting"), why))
        self.copies = StepCopies()
        self.restart(write)
        self.wrap()
        if scheduler is not None:
            self.door(scheduler, "update_from_output", self._around_update_from_output)

    def wrap(self) -> None:
        """Wrap the doors of the model runner."""
        raise NotImplementedError

    def door(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        setattr(owner, name, around(getattr(owner, name)))
        self.doors.append((owner, name))

    def restart(self, write: Write) -> None:
        """Begin another file, steps and requests from 0. No request may be in the engine."""
        self.step = -1
        self.began = time.perf_counter()
        self.names: list[str] = []
        """Requests of the rows of the step before. One list for all steps of a batch: it is compared in no time."""
        self.longest = self.bounded = 0
        """Tokens of the longest request, or more, and for how many steps that may still be added to."""
        self.said: list[Said] = []
        """What the scheduler said since the last step with rows."""
        self.blocks = StepBlocks(write, self.header, len(self.groups))
        self.waiting = []

    # ------------------------------------------------------------------ doors

    def look(self, look: Callable[..., Any], *args: Any) -> Any:
        """What a reading gives; one that fails is the last."""
        if not self.on or self.stopped:
            return None
        try:
            return look(*args)
        except Exception as error:  # the engine must not pay for the recorder
            self.flush()
            self._stop(error)
            return None

    def _stop(self, error: Exception) -> None:
        """Record no more, and say why."""
        traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
        if not self.stopped:
            if not self.blocks.header_sent:  # at its first step: whoever reads the file finds out whose it is
                self.blocks.header_sent = True
                self.blocks.write({"record": "steps_header", "schema": STEPS_SCHEMA, "arm": self.arm, "how": self.how})
            why = "%s: %s" % (type(error).__name__, error)
            self.blocks.write({"record": "steps_stopped", "step": self.step, "why": why})
        self.stopped, self.sight, self.waiting = True, None, []
        self.blocks.clear()

    def _around_update_from_output(self, inner: Any) -> Any:
        def update_from_output(scheduler_output: Any, output: Any) -> Any:
            place = next((at for at, (one, _) in enumerate(self.waiting) if one is scheduler_output), None)
            sight = None if place is None else self.waiting.pop(place)[1]
            if sight is not None:
                self.look(self.taken, sight, output)
            outputs = inner(scheduler_output, output)
            if sight is not None:
                self.look(self._given, sight, outputs)
            return outputs

        return update_from_output

    # ------------------------------------------------------------------ what is seen at each

    def taken(self, sight: Sight, output: Any) -> None:
        """What the scheduler is about to take from the runner: it cuts these lists where a request ends."""

    def scheduled(self, output: Any) -> None:
        """What the scheduler asks for, before the step."""
        self.said.append(said_in(output, self.named))
        self.sight = None
        if output.total_num_scheduled_tokens <= 0:
            return
        self.step += 1
        sight = self.sight = Sight(self.step, round((time.perf_counter() - self.began) * 1e6))
        self.output = output
        if self.scheduler is not None:
            self.waiting.append((output, sight))
        waiting = getattr(self.scheduler, "waiting", None)
        if waiting is not None:
            sight.step_numbers["waiting"] = len(waiting)

    def rows(self, sight: Sight, names: list[str]) -> None:
        """The requests of the rows, and what the scheduler said."""
        sight.said, self.said = self.said, []
        said = sight.said[-1]
        if names != self.names or said.new or said.resumed or not self.bounded:
            self.names, self.longest, self.bounded = names, said.longest(), BOUNDED_STEPS
        else:
            self.longest += max(said.scheduled.values(), default=0)
            self.bounded -= 1
        sight.names = self.names
        for group in range(len(self.groups)):
            sight.groups.setdefault(group, {})

    def widest(self, group: int) -> int:
        """As many blocks as any row of the step has, or more: those of its tokens, of drafts to come, one of state."""
        speculation = self.runner.speculative_config
        more = 2 + (0 if speculation is None else int(speculation.num_speculative_tokens))
        return self.longest // max(1, self.sizes[group]) + more

    def given_metadata(self, sight: Sight, metadata: Any, readings: Callable[[int, Any], None]) -> None:
        """`readings(group, metadata)` of each cache group; what has none is said."""
        for group, builders in enumerate(self.groups):
            if not isinstance(metadata, dict) or not builders:
                self.not_seen("*", group, unknown_metadata(metadata))
                continue
            given = metadata.get(builders[0].layer_names[0])
            if given is None:
                layer = str(builders[0].layer_names[0])
                self.not_seen("*", group, message("unseen.no_metadata", "no metadata for {layer}", layer=layer))
            else:
                readings(group, given)

    def not_seen(self, name: str, group: int, why: Sentence) -> None:
        self.unseen.setdefault("%s/%d" % (name, group), why)

    def lengths(self, sight: Sight, group: int, given: Any) -> None:
        """The sequence lengths that an attention group was given."""
        found = sequence_lengths(self.copies.of, given, len(sight.names))
        if found is None:
            self.not_seen("sequence_length", group, message("unseen.lengths", "sequence lengths of some rows alone"))
        else:
            sight.groups[group]["sequence_length"] = found

    def _given(self, sight: Sight, outputs: Any) -> None:
        if "given" not in self.unseen:
            every = list(chain.from_iterable(group.outputs for group in outputs.values()))
            whose, reasons = list(map(REQUEST_ID, every)), list(map(FINISH_REASON, every))
            sight.given, sight.held["given"] = whose, held(list(map(TOKENS, every)))
            if reasons.count(None) < len(reasons):
                sight.ends = {name: int(why) for name, why in zip(whose, reasons) if why is not None}  # noqa: B905
        self.finished(sight)

    def finished(self, sight: Sight) -> None:
        """All of a step has been seen."""
        if sight.names and self.blocks.add(sight):
            self._close(wait=False)

    # ------------------------------------------------------------------ blocks

    def flush(self) -> None:
        """Write what is held."""
        self._close(wait=True)

    def _close(self, *, wait: bool) -> None:
        try:
            self.blocks.close(wait=wait)
        except Exception as error:
            self._stop(error)

    def header(self, columns: list[str]) -> dict[str, Any]:
        runner, config = self.runner, self.runner.vllm_config
        scheduler, speculation = config.scheduler_config, runner.speculative_config
        seen = {split_name(name)[0].name for name in columns if not name.endswith(".n")}
        for name in COLUMN_BY_NAME:
            if name not in seen and not any(one.partition("/")[0] in (name, "*") for one in self.unseen):
                self.unseen[name] = message("unseen.nothing", "nothing of this kind in the engine's steps")
        return {
            "record": "steps_header",
            "schema": STEPS_SCHEMA,
            "arm": self.arm,
            "runner": "%s.%s" % (type(runner).__module__, type(runner).__name__),
            "device": str(getattr(runner, "device", "")),
            "groups": [
                {"kind": kind, "block_size": size, "layers": sum(len(one.layer_names) for one in builders)}
                for kind, size, builders in zip(self.kinds, self.sizes, self.groups)  # noqa: B905
            ],
            "speculative_tokens": 0 if speculation is None else int(speculation.num_speculative_tokens),
            "mamba_cache_mode": str(getattr(config.cache_config, "mamba_cache_mode", None)),
            "limits": {
                "max_num_seqs": int(scheduler.max_num_seqs),
                "max_num_batched_tokens": int(scheduler.max_num_batched_tokens),
                "max_model_len": int(runner.max_model_len),
            },
            "how": self.how,
            "asynchronous": self.asynchronous,
            "unseen": self.unseen,
        }
