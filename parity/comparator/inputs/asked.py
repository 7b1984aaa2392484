"""What one request asked, from sampling parameters as captures have them: read once, whoever wrote them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from parity.comparator.grammar import Spec, spec_of
from parity.comparator.inputs.bans import stop_tokens, token_ids
from parity.records import Capture, Completion, Header, Json

OF_RULES = frozenset(
    {
        "stop", "include_stop_str_in_output", "min_tokens", "stop_token_ids", "ignore_eos", "skip_special_tokens",
        "allowed_token_ids", "bad_words", "structured_outputs", "guided_decoding", "response_format",
    }
)  # fmt: skip
"""Parameters that `Asked` reads."""


class Asked(Struct, frozen=True):
    """The rules that a request made for its completion."""

    stops: tuple[str, ...] = ()
    includes_stop: bool = False
    """The stop string is to stand in the text."""
    min_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    eos: frozenset[int] = frozenset()
    """EOS tokens of the arm, heeded or not."""
    ignores_eos: bool = False
    skips_special: bool = True
    allowed: frozenset[int] | None = None
    bad_words: tuple[str, ...] = ()
    grammar: Spec | None = None

    @property
    def enders(self) -> frozenset[int]:
        """Tokens that end the completion."""
        return self.stop_ids if self.ignores_eos else self.stop_ids | self.eos

    @property
    def shapes_text(self) -> bool:
        """Its text is more than its tokens, special ones left out: a rule says which."""
        return bool(self.stops or self.stop_ids) or not self.skips_special

    def ends_with(self, completion: Completion) -> int | None:
        """The token in the stream that ended a completion, by its own finish reason; None where there is none."""
        tokens = completion.token_ids
        if completion.finish_reason != "stop" or isinstance(completion.stop_reason, str) or not len(tokens):
            return None
        last = int(tokens[-1])
        return last if last in self.enders else None


_MOST_KNOWN = 4_096
"""Ways to ask that are remembered."""


class Requests(Struct, frozen=True):
    """`Asked` of each request of an arm."""

    arm: Capture
    eos: frozenset[int]
    of_all: Asked = field(default_factory=Asked)
    known: dict[str, Asked] = field(default_factory=dict)
    """By what requests asked of their own: many ask the same, and each is looked at more than once."""

    def of(self, completion: Completion) -> Asked:
        own = completion.sampling.keys() & OF_RULES
        if not own:
            return self.of_all
        name = repr([(one, completion.sampling[one]) for one in sorted(own)])
        found = self.known.get(name)
        if found is None:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            found = self.known[name] = _asked({**self.arm.header.sampling, **completion.sampling}, self.eos)
        return found


def requests_of(arm: Capture, other: Header) -> Requests:
    """`other`: names the EOS where the arm's own header does not."""
    eos = frozenset(arm.header.eos_token_ids or other.eos_token_ids or ())
    return Requests(arm, eos, _asked(arm.header.sampling, eos))


def _asked(sampling: Mapping[str, Json], eos: frozenset[int]) -> Asked:
    least = sampling.get("min_tokens")
    skips = sampling.get("skip_special_tokens")
    return Asked(
        stops=_texts(sampling.get("stop")),
        includes_stop=sampling.get("include_stop_str_in_output") is True,
        min_tokens=least if isinstance(least, int) and not isinstance(least, bool) and least > 0 else 0,
        stop_ids=stop_tokens(sampling),
        eos=eos,
        ignores_eos=sampling.get("ignore_eos") is True,
        skips_special=skips is not False,
        allowed=token_ids(sampling.get("allowed_token_ids")) or None,
        bad_words=_texts(sampling.get("bad_words")),
        grammar=spec_of(sampling),
    )


def _texts(value: Json) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return tuple(dict.fromkeys(one for one in texts if isinstance(one, str) and one))
