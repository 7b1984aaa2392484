"""Sentences that people are shown, and those without a Chinese translation.

    python tools/messages.py [--all] [--under parity/report] [--count]

Prints JSON, English template to "" (or to the translation that there is, with --all), ready to be filled in and put
into parity/locale/zh.json. Sentences are found in the source: strings with a space in them in the modules whose text
reaches people, and the help of every command. Fields of f-strings keep the names of what stands in them; in the
catalogue they may be named better, typed and nested (see parity/language.py).
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from parity.cli.main import COMMANDS, cli
from parity.cli.speaking import paragraphs_of
from parity.language import catalogue

ROOT = Path(__file__).parents[1]
ROOMS = ("cli", "comparator", "pipeline", "plan", "reduce", "report", "run", "store", "watch", "capture", "paths.py")
SHOWN = (*(f"parity/{room}" for room in ROOMS), "backends/parity_backends")
NOT_SHOWN = (
    "worker", "faults", "schema", "html", "svg", "bundle",  # programs, data
    "report/texts",
    "report/formats/md", "report/formats/junit", "report/formats/sarif", "report/known",  # reports: report/texts_zh.py
    "watch/metrics",  # Prometheus: the same names and help everywhere
)  # fmt: skip
"""Parts of paths whose strings are programs, data or pages of their own."""

PROGRAM = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|PRAGMA|BEGIN|AND|WHERE|FROM|import|eval|<\??\w|bold )"
    r"|.*\b(IN|DESC|ASC|IS NULL|WHERE)\b|.* = \?$|.*\{direction|# \[Bug\]|python repro\.py",
    re.DOTALL,
)
"""Strings that are programs: SQL, Python, shell, markup, styles."""

PIECE = re.compile(r"[,;] | (?! )|\[|## ")
"""Beginnings of strings that never stand alone: the sentence that they end has templates of its own."""

MATCHED = frozenset({
    "sampling differs: {name} is ",  # plans.py looks whether this was said
    # What engines, pip, ssh, docker and kubectl say: looked for in their output, never said by parity.
    "Permission denied (", "Host key verification failed", "Could not resolve hostname", "Connection refused",
    "Connection timed out", "No route to host", "No such container", "is not running",
    "the input device is not a TTY", "unable to upgrade connection", "this setup ended with status",
    "command not found", "No such file or directory", "executable file not found", "not found in $PATH",
    "disk is full", "unable to open", "not a database",
    "out of memory", "No available memory for the cache blocks", "Free memory on device", "Not enough memory",
    "not supported for GDN_ATTN", "is not supported for now", "are not supported for now", "no vLLM implementation",
    "No module named", "No module named 'vllm'", "No module named 'torch_npu'", "No module named 'vllm_ascend'",
    "error code is 507033", "error code is 507899", "decode_threshold exceeded", "torchvision::nms does not exist",
    "driver on your system is too old", "CUDA driver version is insufficient", "no kernel image is available",
    "No CUDA GPUs are available", "Found no NVIDIA driver", "connection refused", "OpenAI-compatible server?",
    "HTTP 401", "HTTP 403", "does not load", "is a recording of the model", "was recorded with",
    "has another prompt", "has nothing for", "pip install",
    # Names, which are the same in every language, and what only programmers see.
    "Ascend NPU", "NVIDIA GPU", "vLLM and vllm-ascend", "vLLM {vllm}, vllm-ascend {plugin}",
    "cannot write a {__name__} as JSON", "cannot store a {__name__} as JSON", "nowhere to write",
    "module {__name__} has no attribute {name}", "the question is answered already",
    "p0 = {p0} and p1 = {p1}: wanted 0 < p0 < p1 <= 1", "alpha = {alpha} and beta = {beta} must lie between 0 and 0.5",
    "parity {__version__}, Python {version}\n{argv}",
    # The table for an issue, which is in English as issues are.
    "planted in {rows} {steps} of {hit} requests",  # "step" or "steps": both have one
    "min len", "stop counts", "tok/s incl. start", "corrupt (95 %)",
})  # fmt: skip
"""Strings with a space that nobody is told, or that stay as they are."""

SAMPLE = "7"
ENGLISH = re.compile(r"[A-Za-z][a-z']+ [A-Za-z][a-z']+ [A-Za-z][a-z']+")


def templates_in(path: Path) -> Iterator[str]:
    """String constants and f-strings with a space and a letter, without docstrings and parts of others."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))  # docstrings
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if part is not node)
        if isinstance(node, ast.Compare):
            skipped.update(id(part) for part in (node.left, *node.comparators))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        text = _template(node)
        if text is None or text.strip("\n") in MATCHED or PROGRAM.match(text) or PIECE.match(text):
            continue
        if " " in text.strip() and re.search(r"[A-Za-z]{2}", re.sub(r"\{\w+\}", "", text)):
            yield text.strip("\n")


def _template(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    names: list[str] = []
    parts: list[str] = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
            continue
        assert isinstance(part, ast.FormattedValue)
        words = re.findall(r"[A-Za-z_]\w*", ast.unparse(part.value))
        name = next((word for word in reversed(words) if word not in ("len", "str", "join", "visible")), "value")
        while name in names:
            name += "_"
        names.append(name)
        parts.append("{" + name + "}")
    return "".join(parts)


def help_texts(command: click.Command) -> Iterator[str]:
    """What `--help` shows of a command and of its subcommands."""
    yield from paragraphs_of(command.help or "")
    yield from paragraphs_of(command.epilog or "")
    if command.short_help:
        yield command.short_help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.help:
            yield " ".join(parameter.help.split()).partition("  [")[0]
    for one in command.commands.values() if isinstance(command, click.Group) else ():
        yield from help_texts(one)


def all_help() -> Iterator[str]:
    yield from help_texts(cli)
    context = click.Context(cli)
    for name, (_, short) in COMMANDS.items():
        yield short
        command = cli.get_command(context, name)
        assert command is not None
        yield from help_texts(command)


def known(template: str) -> bool:
    """Whether what the template becomes finds a translation, and no three English words in a row are left in it.

    The second, because "{arm}: {sentence!t}" fits many sentences that begin with a name.
    """
    sample = re.sub(r"\{\w+\}|%[sd]", SAMPLE, template)
    if not catalogue("zh").knows(sample):
        return False
    return not ENGLISH.search(re.sub(r"`[^`]*`", "", catalogue("zh").translate(sample)))


def everything(under: str = "") -> dict[str, None]:
    """All sentences, those of files below `under` only, or of 'help'."""
    found: dict[str, None] = {}
    if under in ("", "help"):
        found.update(dict.fromkeys(all_help()))
    for place in SHOWN:
        where = ROOT / place
        for path in sorted(where.rglob("*.py")) if where.is_dir() else [where]:
            inside = str(path.relative_to(ROOT))
            if inside.startswith(under) and not any(part in inside for part in NOT_SHOWN):
                found.update(dict.fromkeys(templates_in(path)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--all", action="store_true", help="those that are translated, too")
    parser.add_argument("--under", default="", help="only sentences of files below this path, or 'help'")
    parser.add_argument("--count", action="store_true", help="only how many there are and lack a translation")
    options = parser.parse_args()
    found = everything(options.under)
    missing = [one for one in found if not known(one)]
    if options.count:
        print(f"{len(found)} sentences, {len(missing)} without a translation")
        return
    chosen = found if options.all else missing
    messages = catalogue("zh").messages
    print(json.dumps({one: messages.get(one, "") for one in chosen}, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
