"""A sentence as data: `Message(id, parameters)`, rendered at the edge.

    from parity.messages import message

    message("run.no_engine", "the engine of {arm} did not start: {said}", arm=arm, said=error)

The English text stands where the message is made, so that the code can be read; its id is what a catalogue of another
language is looked up by (`parity/language.py`), what JSON carries, and what a program may compare. Parameters are data:
they are formatted when the message is rendered, and what an engine, a server or a file said is one of them and so is
never translated. A parameter that is a Message itself is translated with the one around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeGuard, Union

from parity.plurals import agreeing

Parameter: TypeAlias = Union[bool, int, float, str, "Message", Sequence["Parameter"], None]
Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None

VERBATIM = ""
"""Id of what was not written by parity, or by one that wrote finished sentences: shown as it is."""

MOST_HEARD = 300
"""Characters of one text from a file."""


@dataclass(frozen=True, slots=True)
class Message:
    """One sentence: what it says (`id`), in English (`english`, a `str.format` template), and of what (`parameters`).

    `plural`: the template where the parameter `count` is a number other than 1.
    """

    id: str
    english: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    plural: str | None = None

    def __str__(self) -> str:
        return self.render()

    def render(self, translate: Callable[[Message], str] | None = None) -> str:
        """The sentence. `translate` gives the template in another language; English without it, and where that
        template asks for parameters that the message lacks (it came from a file of another version).
        """
        shown = {name: _shown(value, translate) for name, value in self.parameters.items()}
        if translate is not None:
            try:
                return translate(self).format(**shown)
            except (LookupError, ValueError, TypeError, AttributeError, OverflowError):
                pass  # English, which this message's parameters are for
        return self.template.format(**shown)

    @property
    def template(self) -> str:
        """The English template: the singular, or the plural where `count` asks for it. Nouns agree with numbers."""
        one = self.plural is None or self.parameters.get("count") == 1
        return agreeing(self.english if one or self.plural is None else self.plural, self.parameters)

    def to_json(self) -> dict[str, Json]:
        """`id`, `parameters` and the English `text`, for programs and for a parity that does not know the id."""
        return {
            "id": self.id,
            "parameters": {name: _as_json(value) for name, value in self.parameters.items()},
            "text": self.render(),
        }

    @staticmethod
    def from_json(value: object) -> Message:
        """From `to_json`, or from a finished sentence (files written before messages had ids).

        The English text stands for the template: parameters are there for catalogues, which look up the id.
        Raises ValueError for anything else.
        """
        if isinstance(value, str):
            return verbatim(value)
        if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
            raise ValueError("a message is a text, or an object with id, parameters and text")
        known = value.get("parameters")
        parameters = {str(name): _from_json(one) for name, one in known.items()} if isinstance(known, Mapping) else {}
        return Message(str(value.get("id", VERBATIM)), literal(value["text"]), parameters)


def heard(value: object, clean: Callable[[str], str]) -> Message | None:
    """A sentence from a file or another process, by its id; None where it is not the object that it should be.

    Its writer is not believed: its text is shown as it stands and never formatted, and `clean` makes each text of it
    fit to be shown.
    """
    if not isinstance(value, Mapping):
        return None
    try:
        return _cleaned(Message.from_json(value), clean)
    except (ValueError, RecursionError):
        return None


def shortened(text: str) -> str:
    """So much of what somebody else wrote is shown in a sentence."""
    return text[:MOST_HEARD]


def words_heard(value: object, clean: Callable[[str], str] = shortened) -> Message:
    """What a file or another process says: a sentence of ours by its id, anything else as its own words."""
    return heard(value, clean) or verbatim(clean(str(value)))


def within(said: Message) -> Iterator[Message]:
    """A message, and those among its parameters, and theirs."""
    yield said
    for value in said.parameters.values():
        for one in value if _is_list(value) else (value,):
            if isinstance(one, Message):
                yield from within(one)


def short_json(said: Message) -> Json:
    """What `words_heard` reads again: other people's words as a plain text."""
    return said.to_json() if said.id != VERBATIM else said.render()


Say: TypeAlias = Callable[[Message | str], None]
"""Takes what is said while something runs, for whoever listens."""


def message(id: str, english: str, /, *, plural: str | None = None, **parameters: Parameter) -> Message:
    """A message. `id` is `room.what` in lower case; each id stands for one English text (`make messages` checks it).

    Where a number decides the grammar, it is the parameter `count`, and `plural` is the text for all but one.
    """
    return Message(id, english, parameters, plural)


def verbatim(text: str) -> Message:
    """Somebody else's words, shown as they are in every language."""
    return Message(VERBATIM, literal(text))


def as_message(said: Message | str) -> Message:
    """A message as it is; a plain string as somebody else's words."""
    return said if isinstance(said, Message) else verbatim(said)


def joined(parts: Sequence[Message | str], by: str = "\n") -> Message:
    """Several messages as one, each in its own words, with `by` between them."""
    named: dict[str, Parameter] = {f"part_{number}": part for number, part in enumerate(parts)}
    return Message(VERBATIM, literal(by).join(f"{{{name}}}" for name in named), named)


def seams(said: Message) -> str:
    """The template of one that was `joined`, with a place for each part also where it was read from JSON, which keeps
    the English text alone; of any other its own."""
    text, template, at = said.render(), "", 0
    for number in range(len(said.parameters)):
        name = f"part_{number}"
        part = str(_shown(said.parameters.get(name, ""), None))
        found = text.find(part, at)
        if name not in said.parameters or found < 0:
            return said.template
        template += f"{literal(text[at:found])}{{{name}}}"
        at = found + len(part)
    return template + literal(text[at:]) if template else said.template


def literal(text: str) -> str:
    """The template that becomes `text`."""
    return text.replace("{", "{{").replace("}", "}}")


def _shown(value: Parameter, translate: Callable[[Message], str] | None) -> object:
    if isinstance(value, Message):
        return value.render(translate)
    if _is_list(value):
        return ", ".join(str(_shown(one, translate)) for one in value)
    return value


def _is_list(value: Parameter) -> TypeGuard[Sequence[Parameter]]:
    """A list or a plain tuple; what has a name for each field is one thing, with words of its own."""
    return isinstance(value, list | tuple) and not hasattr(value, "_fields")


def _cleaned(said: Message, clean: Callable[[str], str]) -> Message:
    parameters = {name: _clean(value, clean) for name, value in said.parameters.items()}
    return replace(said, english=literal(clean(str(said))), parameters=parameters)


def _clean(value: Parameter, clean: Callable[[str], str]) -> Parameter:
    if isinstance(value, Message):
        return _cleaned(value, clean)
    if _is_list(value):
        return [_clean(one, clean) for one in value]
    return clean(value) if isinstance(value, str) else value


def _as_json(value: Parameter) -> Json:
    if isinstance(value, Message):
        return value.to_json()
    if _is_list(value):
        return [_as_json(one) for one in value]
    # A StrEnum, a key of a completion or a numpy number would not be what is read back.
    return value if isinstance(value, bool | int | float) or value is None else str(value)


def _from_json(value: object) -> Parameter:
    if isinstance(value, Mapping):
        return Message.from_json(value)
    if isinstance(value, list):
        return [_from_json(one) for one in value]
    return value if isinstance(value, str | int | float) or value is None else str(value)
