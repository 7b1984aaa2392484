"""`parity model path` names a checkpoint that is there."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from parity.cli.main import cli


def test_the_embedded_checkpoint_is_where_it_says() -> None:
    done = CliRunner().invoke(cli, ["model", "path"], prog_name="parity")
    assert done.exit_code == 0, done.output
    directory = Path(done.stdout.strip())
    assert json.loads((directory / "config.json").read_text(encoding="utf-8"))["model_type"] == "qwen3_next"
    assert (directory / "tokenizer.json").exists()
