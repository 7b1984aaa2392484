"""Draw what `parity` showed on the terminal after a real run, as an SVG for the README.

    python tools/make_picture.py run ID docs/images/pass.svg
    python tools/make_picture.py compare BASE.jsonl CANDIDATE.jsonl SCORES.jsonl docs/images/diverged.svg

Nothing is run here and nothing is made up: the summary of a stored run, or of captures, goes through the same
code that writes to the terminal, into a recording console. Paths below the home directory are shown with `~`.
"""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from parity.capture import read_capture, read_scores
from parity.pipeline.analyse import analyse
from parity.plan import DEFAULT_TOLERANCE
from parity.report.terminal import print_summary
from parity.run import load_backend
from parity.store import Store
from parity.view import RunView, of_captures, of_store
from parity.view import run as shown

WIDTH = 92

THEME = TerminalTheme(
    (250, 250, 248),
    (36, 41, 47),
    [
        (36, 41, 47),
        (207, 34, 46),
        (17, 99, 41),
        (125, 78, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (110, 119, 129),
    ],
)
"""Dark on light: readable in GitHub's light theme and its dark one."""


def of_run(run: str) -> tuple[str, RunView]:
    with Store.open(create=False) as store:
        row = store.run(run)
        view = of_store(store, row.id)
    home = str(Path.home())
    directory = view.run.directory and view.run.directory.replace(home, "~", 1)
    command = row.command.replace(home, "~")
    return command, replace(view, run=replace(view.run, directory=directory))


def of_files(baseline: str, candidate: str, scores: str) -> tuple[str, RunView]:
    first, second = read_capture(baseline), read_capture(candidate)
    model = load_backend(first.header.backend).default_model()
    comparison = analyse(first, second, read_scores(scores), tolerance=DEFAULT_TOLERANCE, model=model)
    names = [Path(path).name for path in (baseline, candidate, scores)]
    command = f"parity compare {names[0]} {names[1]} --scores {names[2]} --model {model.name if model else '…'}"
    return command, of_captures([first, second], {second.header.arm: comparison}, model)


def draw(command: str, view: RunView, path: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    with patch.object(shown, "EXAMPLES", 1):  # the README is to be short
        print_summary(console, view, brief=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A fixed id: the same run gives the same file.
    text = console.export_svg(title=f"$ {command}", theme=THEME, unique_id=f"parity-{path.stem}")
    text = re.sub(
        r"@font-face \{.*?\n    \}", "", text, flags=re.DOTALL
    )  # no fonts from elsewhere: any monospace will do
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    if len(arguments) == 3 and arguments[0] == "run":
        draw(*of_run(arguments[1]), Path(arguments[2]))
    elif len(arguments) == 5 and arguments[0] == "compare":
        draw(*of_files(*arguments[1:4]), Path(arguments[4]))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
