"""What the log of a control arm says was planted."""

from __future__ import annotations

import sys
from pathlib import Path

from parity_faults import prompt_key

from parity.pipeline.controls import prompt_digest, read_planted


def test_prompts_are_named_as_the_fault_lab_names_them() -> None:
    for ids in ([], [1], [3, 200, 151643]):
        assert prompt_digest(ids) == prompt_key(ids)


def test_a_log_that_is_not_there_planted_nothing(tmp_path: Path) -> None:
    planted = read_planted(tmp_path / "none.log")
    assert (planted.installed, dict(planted.prompts)) == (False, {})


def test_only_whole_lines_count(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(
        b"INFO something\n"
        b'(Worker pid=7) parity-fault {"record": "installed", "fault": "row_swap"}\n'
        b'parity-fault {"record": "planted", "prompt": "aa"}\n'
        b'parity-fault {"record": "planted", "prompt": "aa"}\n'
        b'parity-fault {"record": "planted", "prompt": "bbparity-fault {"record"\n'
        b"parity-fault [1]\nparity-fault \xff\n" + b"x" * (1 << 20) + b"\n"
    )
    planted = read_planted(log)
    assert planted.installed
    assert dict(planted.prompts) == {"aa": 2}
    assert sys.getsizeof(planted.prompts) < 10_000
