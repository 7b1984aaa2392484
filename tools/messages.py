"""The catalogues of other languages, kept in step with the source.

    python tools/messages.py            # update and compile them: `make messages`
    python tools/messages.py --check    # say what they lack: `make messages-check`

A message stands in the source as `message("room.what", "English …")`; help texts are found by walking the commands.
Entries are kept under the message's id, with the English beside it as a comment. An entry whose English was changed is
marked fuzzy, and stays in use where it names the same parameters. Entries without a message are dropped. Wrong is: one
id with two English texts, an id or text that does not stand in the source, a translation that names other parameters
than its message, a compiled catalogue that is not that of its .po file. A missing translation is no mistake.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import string
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from babel.messages import mofile, pofile
from babel.messages.catalog import Catalog
from babel.messages.catalog import Message as Entry

from parity.cli.main import cli
from parity.cli.speaking import help_messages
from parity.language import CATALOGUES, DOMAIN, LANGUAGES
from parity.report import texts

ROOT = Path(__file__).parents[1]
SOURCES = ("parity", "backends/parity_backends")
PLURALS = {"zh": "nplurals=1; plural=0;"}


@dataclass
class Found:
    """A message of the source."""

    english: str
    plural: str | None
    places: list[str] = field(default_factory=list)

    @property
    def comments(self) -> list[str]:
        """What a translator reads beside the id."""
        return [_on_one_line(text) for text in (self.english, self.plural) if text is not None]


def in_source(path: Path, problems: list[str]) -> Iterator[tuple[str, Found]]:
    """Ids and messages of one file; what cannot be read is added to `problems`."""
    inside = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "message":
            continue
        plural = next((one.value for one in node.keywords if one.arg == "plural"), None)
        texts = [one.value for one in (*node.args, plural) if isinstance(one, ast.Constant)]
        if len(node.args) != 2 or len(texts) != 2 + (plural is not None) or not all(isinstance(t, str) for t in texts):
            problems.append(f"{inside}:{node.lineno}: id and English must stand here as they are")
            continue
        id_, english, *other = map(str, texts)
        given = {one.arg for one in node.keywords} - {"plural"}
        for text in (english, *other):
            # None at all: a row of a table, which gets them where it is used.
            if given and None not in given and (missing := fields_of(text) - given):
                problems.append(f"{inside}:{node.lineno}: {id_} is not given {', '.join(sorted(map(str, missing)))}")
        yield id_, Found(english, other[0] if other else None, [inside])


def everything(problems: list[str]) -> dict[str, Found]:
    """All messages by id, empty texts left out."""
    found: dict[str, Found] = {}
    for place in SOURCES:
        for path in sorted((ROOT / place).rglob("*.py")):
            for id_, one in in_source(path, problems):
                add(found, id_, one, problems)
    for place, messages in (("parity/cli", help_messages(cli)), ("parity/report/texts.py", texts.messages())):
        for one in messages:
            add(found, one.id, Found(one.english, None, [place]), problems)
    return {id_: one for id_, one in sorted(found.items()) if one.english.strip()}


def add(found: dict[str, Found], id_: str, one: Found, problems: list[str]) -> None:
    known = found.setdefault(id_, one)
    if (known.english, known.plural) != (one.english, one.plural):
        problems.append(f"{id_} has two texts: {known.english!r} and {one.english!r} ({known.places}, {one.places})")
    known.places = sorted({*known.places, *one.places})


def fields_of(template: str) -> set[str]:
    """Names of the parameters in a template, formats and conversions left out."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def fields_differ(entry: Entry, one: Found) -> bool:
    """Whether a translation names a parameter that the English does not."""
    texts = entry.string if isinstance(entry.string, (list, tuple)) else [entry.string]
    allowed = fields_of(one.english) | (fields_of(one.plural) if one.plural else set())
    try:
        return any(fields_of(text) - allowed for text in texts if text)
    except ValueError:  # a brace without its like
        return True


def catalogue_of(language: str) -> Path:
    return CATALOGUES / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def read(path: Path, language: str) -> Catalog:
    if not path.is_file():
        return Catalog(locale=language, domain=DOMAIN)
    with path.open("rb") as file:
        return pofile.read_po(file, locale=language, domain=DOMAIN)


def updated(old: Catalog, found: dict[str, Found], language: str) -> Catalog:
    """The catalogue for these messages, with the translations that there are."""
    new = Catalog(locale=language, domain=DOMAIN, project="parity", fuzzy=False, header_comment="")
    for id_, one in found.items():
        known = old.get(id_)
        text = known.string if known is not None else ""
        if one.plural and isinstance(text, str) and text:  # it had no plural before
            text = (text,)
        elif not one.plural and not isinstance(text, str):
            text = text[0]
        same = known is not None and _same_comments(known.auto_comments, one)
        new.add(
            (id_, id_) if one.plural else id_,
            text,
            locations=[(place, None) for place in one.places],
            flags=["fuzzy"] if known is not None and text and (known.fuzzy or not same) else [],
            auto_comments=one.comments,
        )
    return new


def _same_comments(known: Iterable[str], one: Found) -> bool:
    """Comments come back in lines of the file's width, which break at hyphens too; a line that is in the singular and
    in the plural comes back once."""
    if one.plural:
        return _words(known) == _words(one.comments)
    return "".join("".join(known).split()) == "".join("".join(one.comments).split())


def _words(lines: Iterable[str]) -> set[str]:
    return {word for line in lines for word in re.findall(r"\w+", line)}


def written(catalogue: Catalog) -> bytes:
    """The file: sorted, without dates and line numbers, so that only what was changed differs."""
    out = io.BytesIO()
    pofile.write_po(out, catalogue, width=0, sort_output=True, include_lineno=False, omit_header=True)
    language = str(catalogue.locale)
    head = [f"Language: {language}", "Content-Type: text/plain; charset=UTF-8", f"Plural-Forms: {PLURALS[language]}"]
    header = 'msgid ""\nmsgstr ""\n' + "".join(f'"{line}\\n"\n' for line in head)
    return header.encode() + b"\n" + out.getvalue()


def compiled(text: bytes, language: str) -> bytes:
    """The .mo file of a .po file. Entries whose English changed are in it: one that asks for a parameter that its
    message does not have any more is not used (`Message.render`).
    """
    out = io.BytesIO()
    mofile.write_mo(out, pofile.read_po(io.BytesIO(text), locale=language, domain=DOMAIN), use_fuzzy=True)
    return out.getvalue()


def same(one: bytes, other: bytes) -> bool:
    """Whether two .mo files say the same; their headers have the date of their making."""
    catalogues = (mofile.read_mo(io.BytesIO(binary)) for binary in (one, other))
    first, second = ({str(one.id): one.string for one in catalogue if one.id} for catalogue in catalogues)
    return first == second


def report(catalogue: Catalog, found: dict[str, Found], problems: list[str]) -> None:
    """Lists what a translator has to look at; parameters that do not fit are problems."""
    entries = {id_: catalogue.get(id_) for id_ in found}
    missing = [id_ for id_, entry in entries.items() if entry is None or not any(entry.string)]
    changed = [id_ for id_, entry in entries.items() if entry is not None and entry.fuzzy]
    for what, ids in (("without a translation", missing), ("English changed since", changed)):
        for id_ in ids:
            print(f"{what}: {id_}: {_on_one_line(found[id_].english)}")
    print(f"{catalogue.locale}: {len(found)} messages, {len(missing)} without a translation, {len(changed)} to look at")
    for id_, entry in entries.items():
        if entry is not None and entry.string and not entry.fuzzy and fields_differ(entry, found[id_]):
            problems.append(f"{id_} in {catalogue.locale} names parameters that the English does not")


def _on_one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Catalogues of other languages: update and compile, or check.")
    parser.add_argument("--check", action="store_true", help="write nothing, say what is missing")
    options = parser.parse_args(None if arguments is None else list(arguments))
    problems: list[str] = []
    found = everything(problems)
    for language in LANGUAGES:
        if language == "en":
            continue
        path = catalogue_of(language)
        catalogue = updated(read(path, language), found, language)
        report(catalogue, found, problems)
        if not options.check:
            path.write_bytes(written(catalogue))
        binary, wanted = path.with_suffix(".mo"), compiled(path.read_bytes(), language)
        if binary.is_file() and same(binary.read_bytes(), wanted):
            continue
        if options.check:
            problems.append(f"{binary.name} of {language} is not what `make messages` makes of {path.name}")
        else:
            binary.write_bytes(wanted)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
