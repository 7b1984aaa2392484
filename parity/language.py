"""What people read, in their language: English, or Simplified Chinese.

Everything is made, stored and compared as data (`parity.messages`) and put into words where it is shown: a message's id
is looked up in a gettext catalogue (`parity/locale/zh/LC_MESSAGES/parity.mo`). English stands in the source and needs
none, and what has no translation is shown in English. Words of an engine, a server or a file are parameters of
messages, which are shown as they are.
"""

from __future__ import annotations

import gettext
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from parity.messages import Message, seams

LANGUAGES: Final = ("en", "zh")
VARIABLE: Final = "PARITY_LANG"
DOMAIN: Final = "parity"
CATALOGUES: Final = Path(__file__).parent / "locale"

_chosen: str | None = None


def use(language: str | None) -> None:
    """Show everything in this language from now on; None goes by the environment again."""
    global _chosen
    _chosen = language


def current() -> str:
    """The language in use: chosen, else PARITY_LANG, else that of the locale where it is Chinese, else English."""
    if _chosen is not None:
        return _chosen
    named = os.environ.get(VARIABLE)
    if named:
        return "zh" if named.lower().startswith("zh") else "en"
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def render(said: Message | str, language: str | None = None) -> str:
    """A message in words of a language (default: the one in use); a plain string as it is."""
    if isinstance(said, str):
        return said
    language = language or current()
    return said.render(None if language == "en" else lambda one: translate(one, language))


def translate(message: Message, language: str | None = None) -> str:
    """The template of a message in a language (default: the one in use); in English where there is no translation."""
    if not message.id:
        return seams(message)
    catalogue = _catalogue(language or current())
    count = message.parameters.get("count")
    found = catalogue.ngettext(message.id, message.id, count) if isinstance(count, int) else message.id
    if found == message.id:  # no plural forms
        found = catalogue.gettext(message.id)
    return message.template if found == message.id else found


def in_a_row(sentences: Iterable[str]) -> str:
    """Sentences one after another: after a full-width mark, as Chinese has it, stands no space."""
    line = ""
    for sentence in sentences:
        line += f"{'' if not line or line.endswith(('。', '！', '？')) else ' '}{sentence}"
    return line


@cache
def _catalogue(language: str) -> gettext.NullTranslations:
    return gettext.translation(DOMAIN, CATALOGUES, [language], fallback=True)
