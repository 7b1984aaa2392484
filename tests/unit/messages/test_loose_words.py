"""No sentence of ours stands outside of `message(…)`: what is not one cannot be put into another language.

The source is walked for texts that read like words. Those that nobody is shown, or that are not ours, are listed with
the reason; an entry that fits nothing any more has to go.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

WORDS = re.compile(r"[A-Za-z]{2,}[,:;]? [a-z]{2,}")
"""Two words, the second in small letters: English, and not a name."""

ONE_WORD = re.compile(r"[A-Za-z]{3,}")

SHOWN_BY = frozenset({"append", "Text", "Static", "notify", "Select", "Option", "Input", "fit", "Confirm", "Reading"})
"""What puts its first argument on the screen of the interface: there a single word is a text too."""

OF_PYTHON = frozenset({"ValueError", "TypeError", "AttributeError", "NotImplementedError"})
"""Raised where a caller is wrong. Where a user may be, these carry a message too (`errors.said_by`)."""

PROGRAMS = re.compile(r"^\s*(import|from) |^\n")
"""Source for another interpreter."""

HELP = frozenset({"help", "epilog", "short_help", "metavar"})
"""Help texts are found by walking the commands (`tools/messages.py`)."""

NOT_OURS = {
    "parity/store/*.py": "SQL",
    "parity/report/texts.py": "a table of messages of its own, which the catalogues have (`texts.messages`)",
    "parity/report/formats/junit.py": "for programs: the same in every language",
    "parity/report/svg.py": "SVG and style sheets",
    "parity/watch/metrics.py": "for Prometheus: the same in every language",
    "parity/watch/webhook.py": "for programs: the same in every language",
    "parity/tiny/*.py": "names of tensors, and texts that a checkpoint is made of",
    "parity/ray/*.py": "the log of a launcher, which `parity` shows as the words of another program",
    "parity/cli/main.py": "short helps: the catalogues have them (`speaking.help_messages`)",
    "parity/records/sampling.py": "helps of options: the catalogues have them (`speaking.help_messages`)",
    "parity/explain/predicates.py": "names of predicates, by which reports and JSON know them",
    "parity/explain/experiments.py": "names of predicates",
    "parity/plurals.py": "grammar",
    "backends/parity_backends/vllm/worker/table.py": "names of arguments, and nothing else",
    "backends/parity_backends/vllm/worker/record*.py": "what a steps file says of itself: values of its header",
    "backends/parity_backends/vllm/worker/*_runner.py": "what a steps file says of itself: values of its header",
    "backends/parity_backends/vllm/worker/sketch*.py": "what a sketches file says of itself: values of its header",
    "parity/report/minimal.py": "a script in English, as the careful one of `repro.py`",
    "backends/parity_backends/vllm/worker/steps_plugin.py": "in the log of an engine that somebody else started",
    "backends/parity_backends/vllm/doctor/probe.py": "travels alone, as a worker",
    "backends/parity_backends/vllm/kit/*.py": "travels alone, as a worker",
    "backends/parity_backends/vllm/accelerator.py": "what engines say, looked for in their logs",
    "backends/parity_backends/vllm/remedies.py": "what engines say, looked for in their logs",
    "backends/parity_backends/vllm/ascend.py": "what engines say, looked for in their logs",
    "backends/parity_backends/vllm/cuda.py": "what engines say, looked for in their logs",
    "backends/parity_backends/vllm/cpu.py": "what engines say, looked for in their logs",
    "parity/run/launch.py": "what shells and ssh say, looked for in their output",
}
"""Whole modules, and why."""

KEY = "a value of evidence or JSON, by which programs go: where it is shown, a message stands for it"
STYLE, COMMAND = "a style", "a command, to be copied"
PIP = "what pip says, looked for in its output"
PYTHON = "what Python and torch say, looked for in their logs"
LINUX = "what /proc/cpuinfo says"
HAND = "a worker started by hand travels alone, without a catalogue"
LOG = "in a log file"
SYSTEM = "the words of an OSError, which are the system's otherwise"
REPR = "what Python shows of an object"
SARIF = "help of a rule, which code hosts show: in English, as all of that file"
MARKUP = "markup"

NOT_SHOWN = {
    ("backends/parity_backends/vllm/serve/flags.py", "vllm serve"): COMMAND,
    ("parity/cli/output.py", "nowhere to write"): "caught where it is raised for",
    ("parity/comparator/grammar/ebnf.py", "the last column returns"): "an assertion",
    ("parity/comparator/detect/leak.py", "baseline completion"): KEY,
    ("parity/comparator/detect/leak.py", "candidate completion"): KEY,
    ("parity/comparator/detect/unscored.py", "candidate completion"): KEY,
    ("parity/records/evidence.py", "logprobs at the first divergent token"): KEY,
    ("parity/records/evidence.py", "the candidate's own logprobs"): KEY,
    ("parity/records/evidence.py", "the engine's own logprobs"): KEY,
    ("parity/records/evidence.py", "an arbiter"): KEY,
    ("parity/records/evidence.py", "no two requests of the baseline have nearly as long a span in common"): KEY,
    ("parity/records/evidence.py", "the baseline says nothing nearly as long twice"): KEY,
    ("parity/reduce/settings.py", "the planted fault"): KEY,
    ("parity/report/advice.py", "`parity runs show "): COMMAND,
    ("parity/report/advice.py", "parity run … --rounds "): COMMAND,
    ("parity/report/formats/md.py", "python repro.py --model PATH_OR_NAME"): COMMAND,
    ("parity/report/formats/md.py", "parity repro "): COMMAND,
    ("parity/report/repro.py", "an unknown version"): "in a comment of the script, which is in English",
    ("parity/report/terminal.py", "bold green"): STYLE,
    ("parity/report/terminal.py", "bold red"): STYLE,
    ("parity/report/terminal.py", "bold yellow"): STYLE,
    ("parity/run/envs.py", "No matching distribution found"): PIP,
    ("parity/run/envs.py", "pip install"): COMMAND,
    ("parity/run/installing.py", "No space left"): PIP,
    ("parity/run/installing.py", "Could not find a version"): PIP,
    ("parity/run/installing.py", "No matching distribution found"): PIP,
    ("parity/run/process.py", "[parity] the log is cut here, at "): LOG,
    ("parity/tui/app.py", "warm up"): "the name of a group of threads",
    ("parity/tui/screens/dialogs.py", "dialog wide"): STYLE,
    ("parity/tui/screens/dialogs.py", "not bold dim"): STYLE,
    ("parity/tui/screens/dialogs.py", "not bold"): STYLE,
    ("parity/tui/screens/about.py", "parity run --resume "): COMMAND,
    ("parity/tui/screens/help.py", "bold underline"): STYLE,
    ("parity/tui/screens/help.py", "dialog help"): STYLE,
    ("parity/tui/view.py", "bold #ffffff on #1a7f37"): STYLE,
    ("parity/tui/view.py", "bold #ffffff on #b3261e"): STYLE,
    ("parity/tui/widgets/strips.py", "dim italic"): STYLE,
    ("backends/parity_backends/server/worker/transport.py", "application/json, text/event-stream"): "a header of HTTP",
    ("backends/parity_backends/transformers/adapter.py", "No module named"): PYTHON,
    ("backends/parity_backends/transformers/adapter.py", "out of memory"): PYTHON,
    ("backends/parity_backends/vllm/worker/environment.py", r"^(?:model name|hardware)\s*:\s*(.+)$"): LINUX,
    ("backends/parity_backends/vllm/worker/environment.py", r"^CPU part\s*:\s*(.+)$"): LINUX,
    ("backends/parity_backends/vllm/worker/main.py", "Run one arm of a parity plan; the capture goes to stdout."): HAND,
    ("backends/parity_backends/vllm/worker/main.py", "the plan has no arm %r; it has %s"): HAND,
    ("backends/parity_backends/vllm/worker/main.py", "cannot read %s: %s"): HAND,
    ("backends/parity_backends/vllm/worker/main.py", "not a plan of `parity plan`, or not a capture: %s: %s"): HAND,
    ("backends/parity_backends/vllm/cpu_v2.py", "; import triton; triton.runtime.driver.active"): "source",
    ("backends/parity_backends/vllm/local.py", "Metadata-Version: 2.1\nName: parity-record\nVersion: 1\n"): "metadata",
    ("parity/__main__.py", "error: parity failed unexpectedly: "): "when nothing can be imported, no catalogue either",
    ("parity/files.py", "it is a pipe or a device, no file"): SYSTEM,
    ("parity/files.py", "no system takes such a name"): SYSTEM,
    ("parity/files.py", "it is larger than "): SYSTEM,
    ("parity/kit/archive.py", "a header is too large"): SYSTEM,
    ("parity/kit/archive.py", "it holds more than "): SYSTEM,
    ("parity/kit/archive.py", " is larger than "): SYSTEM,
    ("parity/tui/screens/comparing.py", "two runs"): "the name of a group of threads",
    ("parity/tui/screens/dialogs.py", "Page down"): "of a binding that is not shown",
    ("parity/tui/screens/dialogs.py", "Page up"): "of a binding that is not shown",
    ("parity/view/experiments.py", "parity run … "): COMMAND,
    ("parity/secrecy.py", "(not recorded)"): KEY,
    ("backends/parity_backends/worker/protocol.py", "parity worker: "): LOG,
    ("backends/parity_backends/worker/protocol.py", "a line that is not JSON: %r"): LOG,
    (
        "backends/parity_backends/worker/protocol.py",
        "parity worker: nothing from the supervisor for %.0f s, ending\n",
    ): LOG,
    (
        "backends/parity_backends/vllm/worker/step_requests.py",
        "rows of %d tokens, %d scheduled",
    ): "an exception, quoted by the sentence that the steps could not be recorded",
    ("parity/api.py", "no findings"): REPR,
    ("parity/api.py", " compared with "): REPR,
    ("parity/api.py", " characters of SVG>"): REPR,
    ("parity/records/__init__.py", " completions of "): REPR,
    ("parity/explain/aligned.py", "no sketches"): KEY,
    ("parity/explain/aligned.py", "no reference"): KEY,
    ("parity/explain/aligned.py", "other tokens"): KEY,
    ("parity/explain/aligned.py", "other input"): KEY,
    ("parity/explain/aligned.py", "sketches ended"): KEY,
    ("parity/pipeline/beneath.py", "no sketches"): KEY,
    ("parity/pipeline/beneath.py", "no reference"): KEY,
    ("parity/pipeline/beneath.py", "other tokens"): KEY,
    ("parity/pipeline/beneath.py", "other input"): KEY,
    ("parity/pipeline/beneath.py", "sketches ended"): KEY,
    ("parity/plan/apart.py", "no answer"): "an exception of a child, which its caller names",
    ("parity/report/formats/sarif.py", " Defined in docs/"): SARIF,
    ("parity/report/formats/sarif.py", ". `parity tui` shows it, `parity report FINGERPRINT` writes it down."): SARIF,
    ("parity/report/formats/sarif.py", "`. `parity tui` shows it, `parity report FINGERPRINT` writes it down."): SARIF,
    ("parity/report/notebook.py", '<pre style="white-space:pre-wrap"><b>{}</b> {}</pre>'): MARKUP,
    ("parity/report/notebook.py", '<span style="{}">{}</span>'): MARKUP,
    ("parity/report/overview.py", '<svg class="map" role="img" width="'): MARKUP,
    ("parity/report/overview.py", '<figure class="wide"><figcaption class="quiet">'): MARKUP,
    ("parity/report/repro.py", "Not known from the capture, so vLLM's defaults run: "): "in a comment of the script",
    ("backends/parity_backends/vllm/doctor/software.py", "torch-npu, triton-ascend, CANN"): "names",
    (
        "backends/parity_backends/vllm/worker/main.py",
        "%s has no %s: run this file with the Python that has vLLM, as /path/to/its/bin/python %s PLAN --arm ARM\n",
    ): HAND,
    (
        "backends/parity_backends/bundle.py",
        'if sys.version_info < (3, 9):\n    sys.exit("%s is Python %s: this file needs 3.9 or newer, the Python that'
        ' has vLLM"\n             % (sys.executable, sys.version.split()[0]))',
    ): HAND,
    ("backends/parity_backends/bundle.py", '"""\n\nfrom __future__ import annotations\n\n'): "source",
    ("backends/parity_backends/vllm/doctor/hardware.py", "`--gpus all`"): COMMAND,
    ("backends/parity_backends/vllm/doctor/software.py", "vLLM and vllm-ascend"): "names",
    ("backends/parity_backends/vllm/local.py", " failed with exit code "): "in the place of what a tool prints",
}
"""Single texts, and why."""


def loose(source: str, *, on_screen: bool = False) -> Iterator[tuple[int, str]]:
    """(line, text) of what reads like words outside of messages, help and documentation."""
    tree = ast.parse(source)
    covered = {id(one) for node in ast.walk(tree) for part in _spoken_for(node) for one in ast.walk(part)}
    shown = {id(one) for node in ast.walk(tree) for part in _on_screen(node) for one in ast.walk(part)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in covered:
            continue
        if PROGRAMS.match(node.value):
            continue
        if WORDS.search(node.value) or (on_screen and id(node) in shown and ONE_WORD.search(node.value)):
            yield node.lineno, node.value


def _spoken_for(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node that are documentation, a message, or help."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _name(node.exc) in OF_PYTHON:
        yield node.exc
    if isinstance(node, ast.Call):
        if _name(node) == "message":
            yield from node.args
            yield from (one.value for one in node.keywords if one.arg == "plural")
        yield from (one.value for one in node.keywords if one.arg in HELP)


def _on_screen(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and _name(node) in SHOWN_BY and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant):
            yield first
        elif isinstance(first, ast.JoinedStr):
            yield from (part for part in first.values if isinstance(part, ast.Constant))


def _name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def sources() -> list[str]:
    found = [path for folder in ("parity", "backends/parity_backends") for path in (ROOT / folder).rglob("*.py")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def in_source() -> Iterator[tuple[str, int, str]]:
    for name in sources():
        if not any(fnmatch(name, pattern) for pattern in NOT_OURS):
            text = (ROOT / name).read_text(encoding="utf-8")
            yield from ((name, line, words) for line, words in loose(text, on_screen=name.startswith("parity/tui/")))


def test_no_words_stand_outside_of_messages() -> None:
    left = [f"{name}:{line}: {text!r}" for name, line, text in in_source() if (name, text) not in NOT_SHOWN]
    assert not left, "make these messages, or say in this file why they are none:\n" + "\n".join(left)


def test_what_is_excepted_is_there() -> None:
    found = {(name, text) for name, _, text in in_source()}
    assert not set(NOT_SHOWN) - found
    assert all(any(fnmatch(name, pattern) for name in sources()) for pattern in NOT_OURS)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('say("the engine does not start")', ["the engine does not start"]),
        ('say(f"deleted run {run} of today")', ["deleted run ", " of today"]),
        ('message("a.b", "the engine does not start", x=1)', []),
        ('message("a.b", "one row", plural="many rows", count=2)', []),
        ('message("a.b", "{x}", x="the second row")', ["the second row"]),
        ('def f():\n    """Gives the rows."""\n    return 1', []),
        ('click.option("--x", help="how many rows")', []),
        ('text.append("finding ")', ["finding "]),
        ('text.append(f"{n} arms")', [" arms"]),
        ('text.append(" ", style="bold")', []),
    ],
)
def test_loose_words_are_seen(source: str, found: list[str]) -> None:
    assert [text for _, text in loose(source, on_screen=True)] == found
