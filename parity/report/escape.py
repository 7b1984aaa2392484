"""Text that a model, a capture or a far host wrote, made harmless for each format that parity writes.

Everything passes `parity.text.visible` first: no control, bidirectional or invisible character is left.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from parity.records import Json
from parity.text import visible

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|~$])")
_LINKS = re.compile(r"([@#])(?=\w)|(/)(?=/)|(?<=www)(\.)", re.IGNORECASE)
_BACKTICKS = re.compile("`+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_XML = re.compile("[\ufffe\uffff]")


def inline(text: object) -> str:
    """For running Markdown text: no markup, no HTML, no mention, no link comes out of it."""
    shown = _MARKDOWN.sub(r"\\\1", visible(str(text)).replace("&", "&amp;"))
    return _LINKS.sub(lambda match: f"{match.group()}<!-- -->", shown)


def code(text: object) -> str:
    """A Markdown code span that holds `text` exactly, also inside a table."""
    shown = visible(str(text)).replace("|", "\\|")
    if not shown.strip():
        return f"`{shown or ' '}`"
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def block(text: str, language: str = "text") -> str:
    """A fenced Markdown block; the fence is longer than any run of backticks inside. Keeps line ends."""
    shown = visible(text, keep="\n\t")
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    return f"{fence}{language}\n{shown.rstrip()}\n{fence}"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table of cells that are Markdown already."""
    titles = list(header)
    lines = [titles, ["---"] * len(titles), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |" for line in lines)


def markup(text: object) -> str:
    """For HTML, in text and in quoted attributes."""
    return html.escape(visible(str(text)), quote=True)


def xml(text: object, *, keep: str = "") -> str:
    """For XML text: what XML 1.0 cannot hold at all is written as an escape."""
    return html.escape(_xml_characters(text, keep), quote=False).replace('"', "&quot;")


def _xml_characters(text: object, keep: str) -> str:
    return _NOT_XML.sub(lambda match: f"\\u{ord(match.group()):04x}", visible(str(text), keep=keep))


def attribute(text: object) -> str:
    """For an XML attribute, with its quotes."""
    return f'"{xml(text)}"'


def whole(value: Json) -> Json:
    """JSON without what JSON readers refuse: NaN and infinities become null, lone surrogates U+FFFD."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {str(whole(str(key))): whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [whole(item) for item in value]
    if hasattr(value, "tolist"):
        return whole(value.tolist())
    if isinstance(value, float) and not float("-inf") < value < float("inf"):
        return None
    return value


def json_text(value: Json, *, indent: int | None = 2) -> str:
    """JSON in ASCII: nothing in it can act on a terminal or be read in another order than it stands."""
    return json.dumps(whole(value), ensure_ascii=True, allow_nan=False, indent=indent, default=str)


_PATH = re.compile(r"(?:(?<![\w.:/])|(?<=file://)|(?<=:)(?=/[^/]))…?(?:~|[A-Za-z]:)?(?:[/\\][^/\\\s:;,\"'=]+)+[/\\]?")


def without_paths(text: str) -> str:
    """`text` with every absolute path cut to its last part: where things lie on a machine is nobody's business.

    What was cut before stays as it is: a published capture's report is about text that has been cut.
    """
    return _PATH.sub(lambda match: "…/" + re.split(r"[/\\]", match.group().rstrip("/\\"))[-1], text)


def public(value: Any) -> Any:
    """JSON with `without_paths` applied to every string."""
    if isinstance(value, str):
        return without_paths(value)
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [public(item) for item in value]
    return value
