"""The capture file: everything one arm produced, as JSON Lines. docs/capture.md is the specification.

Reading is strict about structure (a cut-off line, a missing footer, a wrong schema, a record given twice,
a count that does not add up: each an error that names the line) and lenient about what an engine may get
wrong, because that is what the comparison is there to find: logprobs of the wrong length, NaN, token ids
outside the vocabulary all load.
"""

from __future__ import annotations

import base64
import binascii
import gc
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import orjson

from parity.errors import ParityError
from parity.records import (
    Capture,
    Completion,
    Header,
    Json,
    Key,
    ScoreKey,
    Scores,
    SpecTrace,
    TokenIds,
    TopLogprobs,
)

SCHEMA = "parity.capture/1"

MAX_LINE_BYTES = 256 * 1024 * 1024
"""A record longer than this is refused: no completion needs it, and captures come from other hosts."""

_HEADER_KEYS = frozenset(
    {
        "record",
        "schema",
        "arm",
        "backend",
        "variant",
        "model",
        "vocab_size",
        "eos_token_ids",
        "engine",
        "sampling",
        "environment",
    }
)


class CaptureError(ParityError):
    """A capture file is not what docs/capture.md says. `line` counts from 1."""

    def __init__(self, path: str, line: int | None, message: str, *, hint: str | None = None) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {message}", hint=hint)
        self.line = line


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a capture file."""

    line: int | None
    message: str


class _Malformed(Exception):
    """A field is not what it should be; the caller knows the line."""


# --------------------------------------------------------------------------- fields


def encode_token_ids(token_ids: TokenIds) -> Json:
    """The compact form of a token array: little-endian int32 in base64. Ids must fit into int32."""
    return {"int32": base64.b64encode(np.asarray(token_ids, dtype="<i4").tobytes()).decode("ascii")}


def decode_token_ids(value: Any, name: str = "token_ids") -> TokenIds:
    """Token ids from a JSON list or from the compact form, as int64 of shape (T,)."""
    if isinstance(value, dict):
        try:
            raw = base64.b64decode(value["int32"], validate=True)
            return np.frombuffer(raw, dtype="<i4").astype(np.int64)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise _Malformed(f"{name} is neither a list nor {{'int32': base64}}: {error}") from None
    if not isinstance(value, list):
        raise _Malformed(f"{name} must be a list of integers, got {_shown(value)}")
    if not value:
        return np.empty(0, dtype=np.int64)
    try:
        array = np.array(value)
    except (ValueError, OverflowError):
        raise _Malformed(f"{name} must be a flat list of integers") from None
    if array.ndim != 1 or array.dtype.kind != "i":
        raise _Malformed(f"{name} must be a flat list of integers that fit into 64 bits")
    return array.astype(np.int64, copy=False)


def _logprobs(value: Any) -> TopLogprobs:
    if not isinstance(value, list):
        raise _Malformed(f"logprobs must be a list with one entry per token, got {_shown(value)}")
    try:
        return TopLogprobs.from_json([entry if entry is not None else [] for entry in value])
    except (ValueError, TypeError, OverflowError) as error:
        raise _Malformed(f"logprobs must be [[[token_id, logprob], …], …]: {error}") from None


def _spec(value: Any) -> SpecTrace | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _Malformed(f"spec must be an object, got {_shown(value)}")
    return SpecTrace(
        decode_token_ids(value.get("accepted", []), "spec.accepted"),
        decode_token_ids(value.get("drafted", []), "spec.drafted"),
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _text(record: Mapping[str, Any], name: str, *, optional: bool = False) -> Any:
    value = record.get(name)
    if value is None and optional:
        return None
    if not isinstance(value, str):
        raise _Malformed(f"{name} must be a string, got {_shown(value)}" if name in record else f"no {name}")
    return value


def _count(record: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = record.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _Malformed(f"{name} must be a whole number, got {_shown(value)}" if value is not None else f"no {name}")
    return value


def _flag(record: Mapping[str, Any], name: str) -> bool:
    value = record.get(name)
    if value is not None and not isinstance(value, bool):
        raise _Malformed(f"{name} must be true or false, got {_shown(value)}")
    return bool(value)


def _object(record: Mapping[str, Any], name: str) -> Mapping[str, Json]:
    value = record.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Malformed(f"{name} must be an object, got {_shown(value)}")
    return value


def _key(record: Mapping[str, Any]) -> Key:
    return Key(_text(record, "request"), _count(record, "round", 0), _count(record, "sample", 0))


# --------------------------------------------------------------------------- records


def parse_header(record: Mapping[str, Any]) -> Header:
    if record.get("schema") != SCHEMA:
        raise _Malformed(f"schema is {_shown(record.get('schema'))}, this version reads {SCHEMA!r}")
    eos = record.get("eos_token_ids")
    if isinstance(eos, int):
        eos = [eos]
    vocab_size = None if record.get("vocab_size") is None else _count(record, "vocab_size")
    return Header(
        arm=_text(record, "arm"),
        backend=_text(record, "backend", optional=True) or "",
        variant=_text(record, "variant", optional=True) or "",
        model=_text(record, "model", optional=True) or "",
        vocab_size=vocab_size,
        eos_token_ids=None if eos is None else tuple(decode_token_ids(eos, "eos_token_ids").tolist()),
        engine=_object(record, "engine"),
        sampling=_object(record, "sampling"),
        environment=_object(record, "environment"),
        extra={name: value for name, value in record.items() if name not in _HEADER_KEYS},
    )


def parse_completion(record: Mapping[str, Any], line: int = 0) -> Completion:
    stop_reason = record.get("stop_reason")
    if stop_reason is not None and not isinstance(stop_reason, int | str):
        raise _Malformed(f"stop_reason must be null, a token id or a string, got {_shown(stop_reason)}")
    return Completion(
        key=_key(record),
        prompt_token_ids=decode_token_ids(record.get("prompt_token_ids"), "prompt_token_ids"),
        token_ids=decode_token_ids(record.get("token_ids"), "token_ids"),
        text=_text(record, "text", optional=True),
        finish_reason=_text(record, "finish_reason", optional=True),
        stop_reason=stop_reason,
        logprobs=None if record.get("logprobs") is None else _logprobs(record["logprobs"]),
        spec=_spec(record.get("spec")),
        line=line,
        max_tokens=None if record.get("max_tokens") is None else _count(record, "max_tokens"),
        server=_object(record, "server") or None,
        aborted=_flag(record, "aborted"),
    )


def parse_score(record: Mapping[str, Any]) -> tuple[ScoreKey, TopLogprobs]:
    if "logprobs" not in record:
        raise _Malformed("no logprobs")
    return ScoreKey(_text(record, "arm"), *_key(record)), _logprobs(record["logprobs"])


def _loads(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        # orjson refuses NaN and Infinity, which Python's own writer makes of broken logprobs, and half a
        # character (a lone surrogate), which it makes of broken text and nothing behind here could write again.
        value = json.loads(raw.decode("utf-8"))
        return _mended(value) if b"\\ud" in raw.lower() else value


def _mended(value: Any) -> Any:
    """With U+FFFD for each lone surrogate in its strings."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(item) for name, item in value.items()}
    return value


def dump_line(record: Mapping[str, Json]) -> bytes:
    """One record as a line; NaN and infinities become null."""
    return orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


# --------------------------------------------------------------------------- reading


@dataclass
class _Assembler:
    """Puts records together and says what is wrong; `report` raises or collects."""

    report: Callable[[int | None, str], None]
    source: str = ""
    header: Header | None = None
    bad_header: bool = False
    completions: dict[Key, Completion] = field(default_factory=dict)
    scores: dict[ScoreKey, TopLogprobs] = field(default_factory=dict)
    score_lines: dict[ScoreKey, int] = field(default_factory=dict)
    counters: Mapping[str, Json] | None = None
    footer_line: int | None = None

    def add(self, line: int, record: Any) -> None:
        if not isinstance(record, dict):
            self.report(line, f"a record must be a JSON object, got {_shown(record)}")
            return
        kind = record.get("record")
        if self.footer_line is not None:
            self.report(line, f"a record after the footer (line {self.footer_line})")
        if (kind == "header") != (self.header is None) and not self.bad_header:
            self.report(line, "a second header" if kind == "header" else "the first record must be the header")
        try:
            if kind == "header":
                self.header = parse_header(record)
            elif kind == "completion":
                self._completion(line, parse_completion(record, line))
            elif kind == "score":
                self._score(line, *parse_score(record))
            elif kind == "round":
                _count(record, "round")
                _object(record, "counters")
            elif kind == "footer":
                self._footer(line, record)
            else:
                self.report(line, f"unknown record {_shown(kind)}; known: header, completion, score, round, footer")
        except _Malformed as error:
            self.bad_header |= kind == "header"
            self.report(line, f"{kind}: {error}")

    def _completion(self, line: int, completion: Completion) -> None:
        first = self.completions.setdefault(completion.key, completion)
        if first is not completion:
            self.report(line, f"completion {completion.key} given twice (first on line {first.line})")

    def _score(self, line: int, key: ScoreKey, logprobs: TopLogprobs) -> None:
        if key in self.scores:
            self.report(
                line,
                f"score of {key.arm} {Key(*key[1:])} given twice (first on line {self.score_lines[key]})",
            )
            return
        self.scores[key] = logprobs
        self.score_lines[key] = line

    def _footer(self, line: int, record: Mapping[str, Any]) -> None:
        self.footer_line = line
        self.counters = _object(record, "counters")
        for name, found in (("completions", len(self.completions)), ("scores", len(self.scores))):
            said = _count(record, name, found)
            if said != found:
                self.report(line, f"the footer says {said} {name}, the file has {found}")

    def finish(self, last_line: int) -> None:
        if self.header is None and not self.bad_header:
            self.report(None if last_line == 0 else 1, "no header: this is not a capture, or it is empty")
        elif self.footer_line is None:
            self.report(last_line, "no footer after this line: the capture is incomplete")

    def capture(self) -> Capture:
        assert self.header is not None
        return Capture(self.header, self.completions, self.scores, self.counters, self.source)


def _open(path: Path) -> IO[bytes]:
    try:
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
    except FileNotFoundError:
        raise ParityError(f"no such capture: {path}", hint="check the path; `parity runs list` names runs") from None
    except OSError as error:
        raise ParityError(f"cannot read {path}: {error.strerror or error}") from None


def _lines(path: Path, report: Callable[[int | None, str], None]) -> Iterator[tuple[int, Any]]:
    """(line number, parsed JSON) of each whole line; what is not JSON goes to `report`."""
    number = 0
    with _open(path) as file:
        try:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    report(number, f"a record longer than {MAX_LINE_BYTES >> 20} MiB")
                    return
                if not raw.strip():
                    continue
                try:
                    parsed = _loads(raw)
                except (ValueError, RecursionError):
                    cut = not raw.endswith(b"\n")
                    report(number, "the line is cut off: the writer was interrupted" if cut else "not valid JSON")
                    continue
                yield number, parsed
        except (OSError, EOFError, zlib.error) as error:
            report(number, f"cannot be read further: {error}")


@contextmanager
def _no_cycle_search() -> Iterator[None]:
    """Python's search for reference cycles stopped: parsed JSON has none, and millions of small lists make the
    search take as long as the reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_no_cycle_search()
def read_capture(path: str | Path, *, partial: bool = False) -> Capture:
    """Read a capture file (`.jsonl` or `.jsonl.gz`).

    With `partial`, a cut-off last line and a missing footer are accepted: what was captured so far.
    Raises CaptureError naming the first bad line.
    """
    path = Path(path)

    def fail(line: int | None, message: str) -> NoReturn:
        hint = "`parity capture check` lists everything that is wrong with it"
        if "cut off" in message or "no footer" in message:
            hint = "finish it with `parity run --resume`, or compare what is there with --partial"
        raise CaptureError(str(path), line, message, hint=hint)

    def tolerate(line: int | None, message: str) -> None:
        if "cut off" not in message:
            fail(line, message)

    report = tolerate if partial else fail
    assembler = _Assembler(fail, source=str(path))
    line = 0
    for line, record in _lines(path, report):
        assembler.add(line, record)
    if not partial or assembler.header is None:
        assembler.finish(line)
    return assembler.capture()


@_no_cycle_search()
def read_scores(path: str | Path) -> Scores:
    """The score records of a capture file, or of a file that holds score records only."""
    path = Path(path)

    def fail(line: int | None, message: str) -> NoReturn:
        raise CaptureError(str(path), line, message, hint="a scores file holds `score` records, see docs/capture.md")

    assembler = _Assembler(fail, source=str(path))
    assembler.header = Header("", "", "", "")  # a file of its own may do without one
    for line, record in _lines(path, fail):
        if isinstance(record, dict) and record.get("record") == "header":
            continue
        assembler.add(line, record)
    if not assembler.scores and assembler.footer_line is None:
        fail(None, "no score records")
    return assembler.scores


def check_capture(path: str | Path) -> list[Problem]:
    """Everything that is wrong with a capture file, in file order; empty when nothing is.

    Stricter than reading: also what a comparison would report about the engine (logprobs that are not as
    long as the tokens) is listed.
    """
    path = Path(path)
    problems: list[Problem] = []

    def note(line: int | None, message: str) -> None:
        problems.append(Problem(line, message))

    assembler = _Assembler(note, source=str(path))
    line = 0
    for line, record in _lines(path, note):
        assembler.add(line, record)
    cut = any("cut off" in problem.message for problem in problems)
    if not (cut and assembler.header is not None):
        assembler.finish(line)
    for completion in assembler.completions.values():
        expected = len(completion.token_ids)
        if completion.logprobs is not None and len(completion.logprobs) != expected:
            note(
                completion.line,
                f"completion {completion.key}: {len(completion.logprobs)} logprobs for {expected} tokens",
            )
    arm = assembler.header.arm if assembler.header else ""
    for key, score in assembler.scores.items():
        scored = assembler.completions.get(Key(*key[1:])) if key.arm == arm else None
        if scored is not None and len(score) != len(scored.token_ids):
            note(
                assembler.score_lines[key],
                f"score of {Key(*key[1:])}: {len(score)} entries for {len(scored.token_ids)} tokens",
            )
    return sorted(problems, key=lambda problem: problem.line or 0)


# --------------------------------------------------------------------------- writing


def header_record(header: Header) -> dict[str, Json]:
    return {
        "record": "header",
        "schema": SCHEMA,
        "arm": header.arm,
        "backend": header.backend,
        "variant": header.variant,
        "model": header.model,
        "vocab_size": header.vocab_size,
        "eos_token_ids": None if header.eos_token_ids is None else list(header.eos_token_ids),
        "engine": dict(header.engine),
        "sampling": dict(header.sampling),
        "environment": dict(header.environment),
        **header.extra,
    }


def logprobs_json(logprobs: TopLogprobs) -> list[list[list[Json]]]:
    rows: list[list[list[Json]]] = []
    for ids, values in zip(logprobs.ids.tolist(), logprobs.values.tolist(), strict=True):
        # -1 pads ragged rows on the right only; a real id of -1 would be an engine's fault and is kept
        # where anything follows it.
        end = len(ids)
        while end and ids[end - 1] == -1 and values[end - 1] != values[end - 1]:
            end -= 1
        rows.append([[token, value] for token, value in zip(ids[:end], values[:end], strict=True)])
    return rows


def completion_record(completion: Completion, *, compact: bool = False) -> dict[str, Json]:

    def tokens(ids: TokenIds) -> Json:
        return encode_token_ids(ids) if compact else ids.tolist()

    record: dict[str, Json] = {
        "record": "completion",
        "request": completion.key.request,
        "round": completion.key.round,
        "sample": completion.key.sample,
        "prompt_token_ids": tokens(completion.prompt_token_ids),
        "token_ids": tokens(completion.token_ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "logprobs": None if completion.logprobs is None else logprobs_json(completion.logprobs),
    }
    if completion.max_tokens is not None:
        record["max_tokens"] = completion.max_tokens
    if completion.aborted:
        record["aborted"] = True
    if completion.server is not None:
        record["server"] = dict(completion.server)
    if completion.spec is not None:
        record["spec"] = {
            "accepted": completion.spec.accepted.tolist(),
            "drafted": completion.spec.drafted.tolist(),
        }
    return record


def score_record(key: ScoreKey, logprobs: TopLogprobs) -> dict[str, Json]:
    return {
        "record": "score",
        "arm": key.arm,
        "request": key.request,
        "round": key.round,
        "sample": key.sample,
        "logprobs": logprobs_json(logprobs),
    }


def write_capture(path: str | Path, capture: Capture, *, compact: bool = False) -> None:
    """Write a whole capture; a `.gz` name compresses it."""
    path = Path(path)
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        for record in capture_records(capture, compact=compact):
            file.write(dump_line(record))


def capture_records(capture: Capture, *, compact: bool = False) -> Iterable[dict[str, Json]]:
    yield header_record(capture.header)
    for completion in capture:
        yield completion_record(completion, compact=compact)
    for key, logprobs in capture.scores.items():
        yield score_record(key, logprobs)
    yield {
        "record": "footer",
        "completions": len(capture.completions),
        "scores": len(capture.scores),
        "counters": dict(capture.counters or {}),
    }
