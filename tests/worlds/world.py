"""A model, its requests, and the captures and scores that its arms make, with the truth about what was planted."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from captures import capture, completion, header

from parity.pipeline.samples import LONG_LIST
from parity.records import Capture, Key, ScoreKey, Scores, SpecTrace, TopLogprobs
from parity.records.sampling import needs_long_lists
from worlds.decoding import Row, Said, decode, force
from worlds.engine import Arm
from worlds.faults import Fault
from worlds.model import EOS, PEAKED, Model, Shape, model
from worlds.rounding import Orders

PREFILL = Orders(splits=(2, 4), window=2, state_every=16)
"""How the scoring engine adds up: all tokens of a completion at once."""

BASE = Arm("cuda/base", Orders(splits=(1, 2)))
SMALL = Arm("cuda/seqs8", Orders(splits=(2, 1)), rows=8)
WIDE = Arm("cuda/seqs256", Orders(splits=(4, 2), window=2), rows=256)


def speculating(tokens: int) -> Arm:
    """The arm with so many draft tokens: its batches are wider, so that other kernels are chosen."""
    return Arm(f"cuda/mtp-k{tokens}", Orders(splits=(2, 4), window=1 + tokens % 2), draft=tokens, draws=tokens)


class Words:
    """The tokenizer: a token is a word of three letters with a blank before it, the end is `<end>`."""

    def __call__(self, token_ids: Sequence[int], /) -> str:
        return "".join(_word(int(one)) for one in token_ids if one != EOS)

    def with_special(self, token_ids: Sequence[int], /) -> str:
        return "".join("<end>" if one == EOS else _word(int(one)) for one in token_ids)

    def encode(self, text: str, /) -> list[int]:
        return [
            sum((ord(letter) - ord("a")) * 26**place for place, letter in enumerate(reversed(word)))
            for word in text.split()
        ]


def _word(token: int) -> str:
    return " " + "".join(chr(ord("a") + token // 26**place % 26) for place in (2, 1, 0))


WORDS = Words()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its prompt, and its own sampling parameters."""

    id: str
    prompt: tuple[int, ...]
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A row that a fault has changed, from which output token on, and whose tokens it has; None: nobody's."""

    position: int
    donor: str | None = None


@dataclass(frozen=True, slots=True)
class Truth:
    """What was planted. rows: completions whose tokens a fault of single rows has changed. moved: tokens that are other
    ones by the fault's doing, each by itself (0 for numerics, where the baseline's text must be asked). lapsed: the
    completions in which a rule was forgotten to some effect, and how many nats below the best the worst choice lies."""

    fault: Fault | None = None
    rows: Mapping[Key, Hit] = field(default_factory=dict)
    moved: float = 0.0
    lapsed: Mapping[Key, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Made:
    """What an arm made."""

    capture: Capture
    truth: Truth


class World:
    """One model and what is asked of it; everything from `seed`."""

    def __init__(self, seed: int = 0, shape: Shape = PEAKED, *, recorded: bool = False) -> None:
        """`recorded`: traces name the drafts, as recorded steps do."""
        self.seed, self.recorded = seed, recorded
        self.model: Model = model(seed, shape)

    def requests(
        self,
        count: int,
        *,
        seed: int = 0,
        lengths: tuple[int, int] = (6, 24),
        own: Sequence[Mapping[str, Any]] = (),
        name: str = "r",
    ) -> list[Asked]:
        """Prompts of random tokens; `own`: parameters of the requests, one after the other, again and again. `name`:
        how their ids begin."""
        rng = np.random.default_rng([self.seed, seed, 2])
        size = self.model.shape.vocabulary
        return [
            Asked(
                f"{name}{number}",
                tuple(int(one) for one in rng.integers(1, size, int(rng.integers(*lengths)))),
                own[number % len(own)] if own else {},
            )
            for number in range(count)
        ]

    # -------------------------------------------------------------- decoding

    def run(
        self,
        asked: Sequence[Asked],
        arm: Arm = BASE,
        *,
        rounds: int = 1,
        fault: Fault | None = None,
        fault_seed: int = 0,
        logprobs: int | None = 0,
        before: int = 0,
        **sampling: Any,
    ) -> Made:
        """The arm's capture. `before`: requests of other calls, whose random numbers these do not draw by. `logprobs`:
        how many of its own the engine lists beside the chosen token's, None: none. Of `sampling`, `one_noise`: all
        requests draw by the same numbers, the likeliest token first."""
        rules = {"temperature": 0.0, "max_tokens": 64, "n": 1, **sampling, **(fault.rules if fault else {})}
        keys, rows = self._rows(asked, arm, rounds, rules, before)
        columns = 0 if logprobs is None else 1 + logprobs
        noise = (self.seed, fault_seed)
        if fault is None or not fault.hits_rows:
            broken = arm if fault is None else replace(arm, broken=fault.broken)
            altered = _altered(fault, keys, rows) if fault else rows
            said = decode(self.model, broken, altered, columns=columns, noise=noise)
            if fault and fault.where:
                clean = decode(self.model, arm, rows, columns=columns, noise=noise)
                odd = [fault.where.holds(key, len(row.prompt), rounds) for key, row in zip(keys, rows, strict=True)]
                said = [one if is_odd else other for one, other, is_odd in zip(said, clean, odd, strict=True)]
            moved = sum(one.moved for one in said)
            lapsed = _lapsed(zip(keys, said, strict=True))
            return Made(self._capture(asked, broken, rules, keys, rows, said), Truth(fault, moved=moved, lapsed=lapsed))
        clean = decode(self.model, arm, rows, columns=columns, noise=noise)
        planted, missing, donors = self._plant(fault, fault_seed, arm, rows, clean, columns)
        hits = {
            keys[row]: Hit(_parts(clean[row].tokens, said.tokens), keys[donors[row]].request if row in donors else None)
            for row, said in planted.items()
            if not _same(clean[row], said)
        }
        hits |= {keys[row]: Hit(0) for row in missing}
        said = [planted.get(row, one) for row, one in enumerate(clean)]
        kept = [row for row in range(len(rows)) if row not in missing]
        made = self._capture(
            asked, arm, rules, [keys[r] for r in kept], [rows[r] for r in kept], [said[r] for r in kept]
        )
        lapsed = _lapsed((keys[row], one) for row, one in planted.items())
        return Made(made, Truth(fault, hits, sum(_moved(clean[row], said) for row, said in planted.items()), lapsed))

    def _rows(
        self, asked: Sequence[Asked], arm: Arm, rounds: int, rules: Mapping[str, Any], before: int
    ) -> tuple[list[Key], list[Row]]:
        keys, rows = [], []
        for number in range(rounds):
            for index, one in enumerate(asked, before):
                for sample in range(int(rules["n"])):
                    keys.append(Key(one.id, number, sample))
                    of_request = 0 if rules.get("one_noise") else index
                    seed = np.random.SeedSequence([self.seed, of_request, number, sample, arm.draws, 3])
                    rows.append(Row(one.prompt, {**rules, **one.own}, int(seed.generate_state(1, np.uint64)[0])))
        return keys, rows

    def _plant(
        self, fault: Fault, seed: int, arm: Arm, rows: Sequence[Row], clean: Sequence[Said], columns: int
    ) -> tuple[dict[int, Said], set[int], dict[int, int]]:
        """Rows as the fault leaves them, rows that it takes away, and whose tokens it gave to whom."""
        rng = random.Random(f"{self.seed} {seed} {fault.name} {fault.size}")
        long = [row for row, one in enumerate(clean) if len(one.tokens) >= (4 if fault.lapse or fault.swap else 24)]
        count = max(1, round(fault.share * len(rows)))
        hit = sorted(rng.sample(long, min(count, len(long))))
        if fault.missing:
            return {}, set(hit), {}
        donors = {row: self._donor(rng, row, long, rows) for row in hit} if fault.damage or fault.leak else {}
        if fault.swap:
            pairs = [(hit[n], hit[(n + 1) % len(hit)]) for n in range(len(hit))]
            if len(hit) == 1:
                other = self._donor(rng, hit[0], long, rows)
                pairs = [(hit[0], other), (other, hit[0])]
            return {row: clean[other] for row, other in pairs}, set(), dict(pairs)
        if fault.damage:
            damaged = {
                row: fault.damage(rng, clean[row].tokens.tolist(), clean[donors[row]].tokens.tolist(), len(self))
                for row in hit
            }
            if fault.again:
                forced = [replace(rows[row], given=one.tokens[: one.keep]) for row, one in damaged.items()]
                again = decode(self.model, arm, forced, columns=columns, noise=(self.seed, seed, 1))
                return dict(zip(damaged, again, strict=True)), set(), donors if fault.needs_donor else {}
            forced = [
                replace(rows[row], given=one.tokens, rules=_free(rows[row], one.tokens)) for row, one in damaged.items()
            ]
            through = decode(self.model, arm, forced, columns=columns, noise=(self.seed, seed, 1))
            named = donors if fault.needs_donor else {}
            return (
                {
                    row: _recorded(clean[row], said, damaged[row].finish)
                    for row, said in zip(damaged, through, strict=True)
                },
                set(),
                named,
            )
        altered = list(rows)
        for row in hit:
            if fault.lapse:
                altered[row] = replace(rows[row], lapse=fault.lapse)
            elif fault.leak:
                start = rng.randrange(2, max(3, len(clean[row].tokens) - 12))
                altered[row] = replace(rows[row], leak=(start, donors[row] % 256))
        said = decode(self.model, arm, altered, columns=columns, noise=(self.seed, seed))
        return {row: said[row] for row in hit}, set(), {}

    def __len__(self) -> int:
        """Size of the vocabulary."""
        return self.model.shape.vocabulary

    def _donor(self, rng: random.Random, row: int, rows: Sequence[int], all_rows: Sequence[Row]) -> int:
        """Another row of the same computed batch, of another prompt."""
        near = [one for one in rows if one // 256 == row // 256 and all_rows[one].prompt != all_rows[row].prompt]
        return rng.choice(near)

    def _capture(
        self,
        asked: Sequence[Asked],
        arm: Arm,
        rules: Mapping[str, Any],
        keys: Sequence[Key],
        rows: Sequence[Row],
        said: Sequence[Said],
    ) -> Capture:
        own = {one.id: one.own for one in asked}
        with_text = any("bad_ids" in some for some in (rules, *own.values()))
        drafted = accepted = 0
        made = []
        for key, row, one in zip(keys, rows, said, strict=True):
            spec = self._trace(row.prompt, one.tokens, arm.draft) if arm.draft else None
            if spec is not None:
                drafted, accepted = drafted + int(spec.drafted.sum()), accepted + int(spec.accepted.sum())
            listed = TopLogprobs(one.own_ids, one.own.astype(np.float64)) if one.own.shape[1] else None
            parameters = self._named(own[key.request])
            limit = parameters.pop("max_tokens", None)
            made.append(
                completion(
                    one.tokens, key.request, round=key.round, sample=key.sample, finish=one.finish, stop=one.stop,
                    prompt=row.prompt, logprobs=listed, spec=spec, max_tokens=limit,
                    text=WORDS(_shown(one)) if with_text else None, **parameters,
                )
            )  # fmt: skip
        speculative = (
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": arm.draft}} if arm.draft else {}
        )
        head = header(
            arm.name, vocab_size=len(self), model=f"world-{self.seed}",
            engine={"max_num_seqs": arm.rows, "logprobs_mode": "raw_logprobs", **speculative}, **self._named(rules),
        )  # fmt: skip
        counters = {"draft_tokens": drafted, "accepted_tokens": accepted} if arm.draft else {}
        return capture(head, *made, counters=counters)

    def _named(self, rules: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters as a capture has them: bad words as texts."""
        named = {name: value for name, value in rules.items() if name != "one_noise"}
        if words := named.pop("bad_ids", None):
            named["bad_words"] = [WORDS(word).strip() for word in words]
        return named

    def _trace(self, prompt: Sequence[int], tokens: np.typing.NDArray[np.int64], draft: int) -> SpecTrace:
        """What a draft that follows the usual pairs of tokens would have proposed, and how much of it was taken."""
        line = np.array([0, *prompt, *tokens], dtype=np.int64)[max(0, len(prompt) - 1) :]
        line = line[line >= 0]
        usual = self.model.usual[self.model.context(line[1:-1], line[:-2])]
        hit = (usual == line[2:])[1:].tolist()
        accepted, at, named = [], 0, np.append(usual[1:], np.full(draft, -1))
        drafts: list[int] = []
        while at < len(hit):
            run = 0
            while run < draft and at + run < len(hit) and hit[at + run]:
                run += 1
            accepted.append(run)
            drafts += named[at : at + draft].tolist()  # after a rejected one any will do: nobody looks at it
            at += run + 1
        counts = np.array(accepted, dtype=np.int64), np.full(len(accepted), draft, dtype=np.int64)
        return SpecTrace(*counts, np.array(drafts, dtype=np.int64) if self.recorded else None)

    # -------------------------------------------------------------- scoring

    def score(
        self,
        *captures: Capture,
        top: int | None = None,
        arm: Arm | None = None,
        known: dict[bytes, TopLogprobs] | None = None,
    ) -> Scores:
        """Every completion of these captures, teacher-forced through an engine without speculation; equal ones once.

        Lists are as `parity run` asks for them: longer where a request has a penalty, with logsumexp for a repetition
        penalty. `known` has the streams that were scored before, and takes up those that were not.
        """
        engine = arm or Arm("cuda/base", PREFILL)
        asked = [sampling for one in captures for sampling in (one.header.sampling, *(made.sampling for made in one))]
        top = top or (LONG_LIST if any(map(needs_long_lists, asked)) else 5)
        repeating = any(one.get("repetition_penalty", 1.0) != 1.0 for one in asked)
        found = {} if known is None else known
        how = f"{engine.name} {top} {repeating}".encode()  # shorter lists are no answer to a request for longer ones
        streams: dict[bytes, tuple[tuple[int, ...], np.typing.NDArray[np.int64]]] = {}
        places: list[tuple[ScoreKey, bytes]] = []
        for one in captures:
            for made in one:
                name = b"|".join([how, made.prompt_token_ids.tobytes(), made.token_ids.tobytes()])
                if name not in found:
                    streams.setdefault(name, (tuple(made.prompt_token_ids.tolist()), made.token_ids))
                places.append((ScoreKey(one.header.arm, *made.key), name))
        scored = force(self.model, engine, list(streams.values()), top=top)
        found |= {
            name: TopLogprobs(one.ids, one.values, one.logsumexp if repeating else None)
            for name, one in zip(streams, scored, strict=True)
        }
        return {key: found[name] for key, name in places}


def _shown(said: Said) -> list[int]:
    """Tokens that the text has: the stop token is not among them."""
    return (said.tokens if said.stop is None else said.tokens[:-1]).tolist()


def _free(row: Row, tokens: Sequence[int]) -> dict[str, Any]:
    """Rules under which exactly these tokens can be said."""
    return {**row.rules, "max_tokens": max(1, len(tokens)), "ignore_eos": True, "stop_token_ids": (), "min_tokens": 0}


def _recorded(clean: Said, said: Said, finish: str | None) -> Said:
    """The damaged row with what the engine recorded of the tokens that it really chose."""
    own = said.own.copy()
    same = min(len(clean.tokens), len(said.tokens))
    changed = np.flatnonzero(clean.tokens[:same] != said.tokens[:same])
    if len(own) and len(changed) and said.own.shape[1]:
        own[changed, 0] = clean.own[changed, 0]
    ended = int(said.tokens[-1]) == EOS if len(said.tokens) else False
    return replace(said, finish=finish or ("stop" if ended else clean.finish), stop=None, own=own)


def _altered(fault: Fault, keys: Sequence[Key], rows: Sequence[Row]) -> list[Row]:
    """Rows of an arm that lapses as a whole, or draws the same where it should not."""
    if fault.lapse:
        rows = [replace(one, lapse=fault.lapse) for one in rows]
    if fault.same_draws:
        seeds: dict[Key, int] = {}
        alike = [
            Key(
                "" if fault.same_draws == "request" else key.request,
                0 if fault.same_draws == "round" else key.round,
                0 if fault.same_draws == "sample" else key.sample,
            )
            for key in keys
        ]
        for key, row in zip(alike, rows, strict=True):
            seeds.setdefault(key, row.seed)
        rows = [replace(row, seed=seeds[key]) for key, row in zip(alike, rows, strict=True)]
    return list(rows)


def _lapsed(rows: Iterable[tuple[Key, Said]]) -> dict[Key, float]:
    return {key: one.worst for key, one in rows if one.moved > 0}


def _moved(clean: Said, said: Said) -> float:
    """Tokens that a damage of a row has changed: those that a lapse did, else all that differ."""
    same = min(len(clean.tokens), len(said.tokens))
    differ = int((clean.tokens[:same] != said.tokens[:same]).sum())
    return said.moved or differ + abs(len(clean.tokens) - len(said.tokens))


def _parts(one: np.typing.NDArray[np.int64], other: np.typing.NDArray[np.int64]) -> int:
    same = min(len(one), len(other))
    differ = np.flatnonzero(one[:same] != other[:same])
    return int(differ[0]) if len(differ) else same


def _same(one: Said, other: Said) -> bool:
    return one.finish == other.finish and np.array_equal(one.tokens, other.tokens)
