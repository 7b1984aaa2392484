"""Sentences with values of somebody else's in them, for Markdown and for HTML.

A sentence of a report (`texts.py`) is a `Message` whose template is Markdown of our own (code in backticks, emphasis in
stars); its parameters are plain, and `Code` where they are to be shown as code. Each format escapes them for itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup, escape

from parity.language import render, translate
from parity.messages import Message, Parameter
from parity.report.escape import code, inline
from parity.report.texts import ENGLISH
from parity.text import visible

_SPANS = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*")


class Code(str):
    """A name, a value or a token that is shown as code."""


def in_markdown(said: Message | str, language: str) -> str:
    """A sentence in Markdown."""
    if isinstance(said, Code):
        return code(said)
    if isinstance(said, str) or not _is_ours(said):
        return inline(render(said, language))
    shown = {name: _in_markdown(value, language) for name, value in said.parameters.items()}
    return translate(said, language).format(**shown)


def _is_ours(said: Message) -> bool:
    """Of a report, and not read from a file: other templates are plain text, with anything in it."""
    return ENGLISH.get(said.id.removeprefix("report.")) == said.english


def _in_markdown(value: Parameter, language: str) -> str:
    if isinstance(value, Message | str):
        return in_markdown(value, language)
    if isinstance(value, Sequence):
        return ", ".join(_in_markdown(one, language) for one in value)
    return str(value)


def in_html(said: Message | str, language: str) -> Markup:
    """A sentence in HTML."""
    if isinstance(said, Code):
        return Markup("<code>{}</code>").format(visible(said))
    if isinstance(said, str) or not _is_ours(said):
        return escape(visible(render(said, language)))
    shown = {name: _in_html(value, language) for name, value in said.parameters.items()}
    return _template(translate(said, language)).format(**shown)


def _in_html(value: Parameter, language: str) -> Markup:
    if isinstance(value, Message | str):
        return in_html(value, language)
    if isinstance(value, Sequence):
        return Markup(", ").join(_in_html(one, language) for one in value)
    return escape(value)


def _template(markdown: str) -> Markup:
    parts: list[Markup] = []
    end = 0
    for span in _SPANS.finditer(markdown):
        tag = ("code", "strong", "em")[(span.lastindex or 1) - 1]
        parts += [escape(markdown[end : span.start()]), Markup(f"<{tag}>"), escape(span[span.lastindex or 1])]
        parts.append(Markup(f"</{tag}>"))
        end = span.end()
    return Markup("").join([*parts, escape(markdown[end:])])
