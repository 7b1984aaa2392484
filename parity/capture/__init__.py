"""The capture file: everything one arm produced, as JSON Lines. docs/capture.md is the specification.

Reading is strict about structure (a cut-off line, a missing footer, a wrong schema, a record given twice,
a count that does not add up: each an error that names the line) and lenient about what an engine may get
wrong, because that is what the comparison is there to find: logprobs of the wrong length, NaN, token ids
outside the vocabulary all load.

    checksum → lines → fields → parse → assemble → read | scores | check        write
                          → lookup            columns | packing → rows
    several processes: read → crew → read_child → stretch → packing
"""

from __future__ import annotations

from parity.capture.check import UNFINISHED, check_capture, look_at
from parity.capture.fields import decode_token_ids, encode_token_ids
from parity.capture.lines import MAX_LINE_BYTES, dump_line, is_too_dense
from parity.capture.lookup import find_completion, find_score
from parity.capture.parse import SCHEMA, parse_completion, parse_header, parse_score
from parity.capture.problems import CaptureError, Problem
from parity.capture.read import read_capture, read_scores
from parity.capture.recognise import is_capture
from parity.capture.scores import ScoreFile
from parity.capture.write import (
    capture_records,
    completion_record,
    header_record,
    logprobs_json,
    score_record,
    write_capture,
)

__all__ = [
    "MAX_LINE_BYTES",
    "SCHEMA",
    "UNFINISHED",
    "CaptureError",
    "Problem",
    "ScoreFile",
    "capture_records",
    "check_capture",
    "completion_record",
    "decode_token_ids",
    "dump_line",
    "encode_token_ids",
    "find_completion",
    "find_score",
    "header_record",
    "is_capture",
    "is_too_dense",
    "logprobs_json",
    "look_at",
    "parse_completion",
    "parse_header",
    "parse_score",
    "read_capture",
    "read_scores",
    "score_record",
    "write_capture",
]
