"""`parity demo`: a recording that comes with the package, judged like any run."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from parity.capture import check_capture

DEMO = Path(str(files("parity") / "demo"))


def test_a_verdict_without_an_engine(tmp_path: Path) -> None:
    env = {**os.environ, "PARITY_HOME": str(tmp_path), "PARITY_CPU_PYTHON": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-m", "parity", "demo", "--json"], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done.stderr
    assert "a recording, no engine runs" in done.stderr
    result = json.loads(done.stdout)
    clean, broken = result["arms"]["replay/mtp"], result["arms"]["replay/mtp-broken"]
    assert clean["verdict"] == "PASS"
    assert clean["counts"] == {"near_tie": 5}  # noise is in it, as in any real run
    assert broken["verdict"] == "DIVERGED"
    corrupt = {finding["request"] for finding in broken["findings"] if finding["severity"] == "corrupt"}
    assert len(corrupt) == 6
    assert clean["stats"]["exercised"]["accepted_tokens"] > 0
    assert (tmp_path / "parity.db").exists()  # stored like any run, for `parity tui`


def test_the_recordings_are_whole_small_and_name_no_machine() -> None:
    paths = sorted(DEMO.glob("*.gz"))
    assert [path.name for path in paths] == [
        "base.jsonl.gz", "mtp-broken.jsonl.gz", "mtp.jsonl.gz", "scores.jsonl.gz"
    ]  # fmt: skip
    assert sum(path.stat().st_size for path in paths) < 300_000
    for path in paths:
        assert check_capture(path) == []
        text = gzip.decompress(path.read_bytes()).decode()
        assert "/home/" not in text
        assert "LD_PRELOAD" not in text
    header = json.loads(gzip.decompress((DEMO / "mtp-broken.jsonl.gz").read_bytes()).splitlines()[0])
    assert header["environment"]["variables"]["PARITY_FAULT"].startswith("accepted_counts")  # said, not hidden
