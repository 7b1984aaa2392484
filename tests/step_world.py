"""A made-up engine whose bookkeeping is right: steps with churn, chunks of prompts, preemption, drafts and stops.

It keeps its books as vLLM's first model runner does: rows are filled from the end when a request leaves, a preempted
request is computed again from its first token, a chunk that does not reach the end emits nothing.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from parity.capture.step_table import NOTHING, Ragged, pack_block
from parity.capture.steps import CacheGroup, RowSteps, StepRequest, StepsBlock, StepsHeader
from parity.records import Capture, Completion, Header, Key, TokenIds

ATTENTION, STATE = 0, 1
BLOCK = 4
LONGEST = 64
EOS = 1


@dataclass
class Running:
    number: int
    prompt: list[int]
    max_tokens: int
    emitted: list[int] = field(default_factory=list)
    computed: int = 0
    drafts: list[int] = field(default_factory=list)
    proposed: list[int] = field(default_factory=list)
    accepted: int = 1
    blocks: list[list[int]] = field(default_factory=lambda: [[], []])
    arrival: int = 1
    entries: int = NOTHING
    """A digest of its keys and values."""

    @property
    def known(self) -> list[int]:
        return self.prompt + self.emitted


class World:
    """`steps` steps of a batch of `rows`; the same for the same seed."""

    def __init__(self, seed: int, *, rows: int = 4, k: int = 2, steps: int = 40, budget: int = 12) -> None:
        self.random = random.Random(seed)
        self.rows, self.k, self.budget = rows, k, budget
        self.batch: list[Running] = []
        self.waiting: list[Running] = []
        self.requests: dict[int, StepRequest] = {}
        self.prompts: dict[Key, TokenIds] = {}
        self.free = list(range(1, 400))
        self.columns: dict[str, list[object]] = {}
        self.finished: list[int] = []
        self.digests = random.Random(seed)
        self.states: dict[int, int] = {}
        """A digest of what each state slot holds."""
        for number in range(steps):
            self._step(number)

    def _put(self, **values: object) -> None:
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)

    def _token(self) -> int:
        return EOS if self.random.random() < 0.03 else self.random.randrange(2, 500)

    # ------------------------------------------------------------------ who runs

    def _leave(self, row: int) -> None:
        last = self.batch.pop()
        if row < len(self.batch):
            self.batch[row] = last

    def _preempt(self) -> None:
        if len(self.batch) > 1 and self.random.random() < 0.1:
            one = self.batch[row := self.random.randrange(len(self.batch))]
            self._leave(row)
            self.free += [block for blocks in one.blocks for block in blocks]
            one.blocks, one.computed, one.drafts, one.accepted, one.arrival = [[], []], 0, [], 1, 2
            self.waiting.append(one)

    def _arrive(self) -> None:
        while self.random.random() < 0.4 or not (self.batch or self.waiting):
            number = len(self.requests)
            prompt = [self.random.randrange(2, 500) for _ in range(self.random.randrange(2, 20))]
            one = Running(number, prompt, self.random.randrange(1, 20))
            key = Key(f"p{number}", 0, 0)
            self.prompts[key] = np.array(prompt)
            self.requests[number] = StepRequest(
                number=number, engine_id=f"{number}-x", request=key.request, prompt_tokens=len(prompt), plain=True,
                max_tokens=one.max_tokens, stops=(EOS,),
            )  # fmt: skip
            self.waiting.append(one)

    # ------------------------------------------------------------------ a step

    def _step(self, number: int) -> None:
        self._preempt()
        self._arrive()
        left, chosen = self.budget, []
        for one in self.batch:
            count = min(len(one.known) + len(one.drafts) - one.computed, left)
            if count <= 0:
                continue
            one.drafts = one.drafts[: max(0, count - (len(one.known) - one.computed))]
            chosen.append((one, count))
            left -= count
        self.batch = [one for one, _ in chosen]  # who is not scheduled is not in the batch; here none comes back
        while self.waiting and left > 0 and len(self.batch) < self.rows:
            one = self.waiting.pop(0)
            count = min(len(one.known), left)
            self.batch.append(one)
            chosen.append((one, count))
            left -= count
        self._put(
            step=number, time_us=number * 1000, rows=len(chosen), tokens=sum(count for _, count in chosen),
            padded=sum(count for _, count in chosen), padded_rows=NOTHING, graph=0, waiting=len(self.waiting),
            finished=self.finished, states_found_in=1, states_left_in=1,
        )  # fmt: skip
        self.finished = []
        start, ends = 0, []
        for row, (one, count) in enumerate(chosen):
            ends.append(self._row(row, one, count, start))
            start += count
        for row in reversed(range(len(chosen))):
            if ends[row]:
                one = self.batch[row]
                self.finished.append(one.number)
                self.free += [block for blocks in one.blocks for block in blocks]
                self._leave(row)

    def _row(self, row: int, one: Running, count: int, start: int) -> bool:
        """The columns of one row; whether its request is over."""
        prompt, known, computed = len(one.prompt), one.known, one.computed
        tokens = (known + one.drafts)[computed : computed + count]
        emits = computed + count >= len(known)
        decodes = self.k > 0 and computed >= prompt and count == len(one.drafts) + 1
        head = tokens[: max(0, prompt - computed)]
        new_blocks = self._blocks(one, computed + count)
        chosen = [self._token() for _ in range(len(one.drafts) + 1)]
        for place, draft in enumerate(one.drafts):
            if self.random.random() < 0.6:
                chosen[place] = draft
        agree = next((i for i, draft in enumerate(one.drafts) if draft != chosen[i]), len(one.drafts))
        sampled = chosen[: agree + 1]
        handed = sampled if emits else []
        given, finish = self._ends(one, handed)
        begin, end = computed // BLOCK, (computed + count - 1) // BLOCK
        slots = one.blocks[STATE]
        path = 0 if decodes else 2
        after = one.emitted + handed
        used = slots[: self.k + 1] if decodes else slots[:1]
        begins = [self.states.setdefault(slot, 0) for slot in used]
        self.states.update({slot: self.digests.randrange(1 << 31) for slot in used})
        entries = self.digests.randrange(1 << 31)
        proposed = [self.random.randrange(2, 500) for _ in range(self.k)]
        self._put(**{
            "request": one.number, "arrival": one.arrival, "index_row": row, "output_row": row, "computed": computed,
            "scheduled": count, "position": computed, "positions_off": 0, "query_length": count,
            "logits_first": start + count - len(one.drafts) - 1, "logits_off": 0,
            "prompt_crc": zlib.crc32(np.array(head, dtype="<i4").tobytes()) if head else 0,
            "inputs": tokens[len(head) :], "drafts": one.drafts, "sampler_drafts": one.drafts, "sampled": sampled,
            "chosen": sampled, "handed": handed, "given": given, "finish": finish, "proposed": proposed,
            "kept": len(sampled), "buffer_length": prompt + len(after), "buffer_last": (one.prompt + after)[-1],
            "new_blocks/0": new_blocks[0], "new_blocks/1": new_blocks[1], "table_off/0": NOTHING,
            "table_found/0": NOTHING, "table_own/0": NOTHING, "written/0": one.blocks[ATTENTION][begin : end + 1],
            "slots_off/0": 0, "sequence_length/0": computed + count, "path/1": path,
            "accepted/1": one.accepted if decodes else NOTHING,
            "initial/1": int(computed > 0) if path == 2 else NOTHING,
            "state_slots/1": used, "split_off/1": 0, "state_found/1": begins,
            "state_left/1": [self.states[slot] for slot in used],
            "kv_found/0": one.entries, "kv_kept/0": one.entries, "kv_left/0": entries, "kv_tokens/0": computed + count,
        })  # fmt: skip
        one.computed = computed + count - (len(one.drafts) - agree if emits else 0)
        one.emitted, one.accepted, one.arrival, one.entries = after, len(sampled), 0, entries
        one.drafts = proposed if emits and prompt + len(after) + self.k < LONGEST else []
        return finish != NOTHING

    def _blocks(self, one: Running, length: int) -> list[list[int]]:
        due = (-(-length // BLOCK), self.k + 1)
        new = [[self.free.pop(0) for _ in range(count - len(own))] for count, own in zip(due, one.blocks, strict=True)]
        for own, more in zip(one.blocks, new, strict=True):
            own += more
        return new

    def _ends(self, one: Running, handed: list[int]) -> tuple[list[int], int]:
        for place, token in enumerate(handed):
            if token == EOS:
                return handed[: place + 1], 0
            total = len(one.emitted) + place + 1
            if total >= one.max_tokens or len(one.prompt) + total >= LONGEST:
                return handed[: place + 1], 1
        return handed, NOTHING

    # ------------------------------------------------------------------ as recorded

    def recorded(self, arm: str = "cpu/mtp") -> RowSteps:
        header = StepsHeader(
            schema="parity.steps/1", arm=arm, groups=(CacheGroup("attention", BLOCK, 1), CacheGroup("state", BLOCK, 3)),
            speculative_tokens=self.k, mamba_cache_mode="none",
            limits={"max_num_seqs": self.rows, "max_num_batched_tokens": self.budget, "max_model_len": LONGEST},
        )  # fmt: skip
        return RowSteps(header, self.requests, {name: column(values) for name, values in self.columns.items()})

    def capture(self, arm: str, steps: RowSteps) -> Capture:
        """A capture with the tokens that the steps gave out."""
        given, request = steps.lists("given"), steps.numbers("request")
        tokens: dict[Key, list[int]] = {key: [] for key in self.prompts}
        for index in range(len(steps)):
            key = steps.requests[int(request[index])].key
            assert key is not None
            tokens[key] += given.row(index)
        backend, variant = arm.split("/")
        engine = {"speculative_config": {"method": "mtp"}} if variant == "mtp" else {}
        sampling = {"temperature": 0.0, "max_tokens": 20, "n": 1}
        header = Header(arm, backend, variant, "made-up", 1000, (EOS,), engine, sampling)
        completions = [
            Completion(key, prompt, np.array(tokens[key], dtype=np.int64), None, "length", None)
            for key, prompt in self.prompts.items()
        ]
        return Capture(header, {one.key: one for one in completions}, {}, {})


def steps_lines(steps: RowSteps) -> Iterator[bytes]:
    """The lines of a file with these steps in one block."""
    encode = msgspec.json.encode
    yield encode(steps.header) + b"\n"
    packed = pack_block(steps.columns)
    block = StepsBlock(
        steps=len(steps.rows),
        rows=len(steps),
        requests=list(steps.requests.values()),
        columns=packed["columns"],
        data=packed["data"],
        replica=steps.header.replica,
    )
    yield encode(block) + b"\n"
    for line in (steps.stopped, steps.summary):
        if line is not None:
            yield encode(line) + b"\n"


def column(values: list[object]) -> np.ndarray | Ragged:
    if any(isinstance(value, list) for value in values):
        lists = [list(value) for value in values]  # type: ignore[call-overload]
        counts = np.array([len(one) for one in lists], dtype=np.int64)
        return Ragged(counts, np.array([value for one in lists for value in one], dtype=np.int64))
    return np.array(values, dtype=np.int64)


def changed(steps: RowSteps, name: str, index: int, value: int | list[int]) -> RowSteps:
    """The steps with one entry of one column changed."""
    columns = dict(steps.columns)
    old = columns[name]
    if isinstance(old, Ragged):
        lists = [old.row(at) for at in range(len(old.counts))]
        lists[index] = value if isinstance(value, list) else [value]
        columns[name] = column(lists)  # type: ignore[arg-type]
    else:
        numbers = old.copy()
        numbers[index] = value if isinstance(value, int) else value[0]
        columns[name] = numbers
    return RowSteps(steps.header, steps.requests, columns, steps.stopped)
