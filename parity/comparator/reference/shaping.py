"""What an engine chose a token from, where that is not what scores and raw logprobs show: penalties and biases.

Bans are applied before (inputs/bans.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from parity.comparator.inputs.bans import APPLIED
from parity.comparator.inputs.questions import temperature_in
from parity.comparator.reference.penalties import ANY_LOGIT, Penalised, Penalties
from parity.records import Completion, Json
from parity.records.sampling import ASK_GRAMMARS, Effect, Parameter, forbids, parameters

_COMPUTED = {
    "repetition_penalty": "repetition",
    "presence_penalty": "presence",
    "frequency_penalty": "frequency",
    "logit_bias": "bias",
}
"""Sampling parameters that are recomputed, and their fields in Penalties."""


_MASKS = ASK_GRAMMARS | {"bad_words"}
"""Those that take tokens away and move no logit of those that are left."""


class Shaping(Struct, frozen=True):
    """What sampling parameters do to the logits of a completion."""

    penalties: Penalties = field(default_factory=Penalties)
    """What is recomputed."""
    unknown: tuple[str, ...] = ()
    """Parameters that move logits in ways that nothing here can compute: that a token is not the best of the raw ones
    says nothing then."""
    masked: tuple[str, ...] = ()
    """Parameters whose forbidden tokens are out of the scores, and stand in the engines' own lists."""
    logit_range: tuple[float, float] = ANY_LOGIT
    """Nats between which log(sum(exp(logits))) lies, where a list does not record it."""

    forbids: bool = False
    """The rest of a list is not what could be drawn."""

    @property
    def none(self) -> bool:
        """Between the lists and what was drawn from there is a temperature and a cut-off alone."""
        return not (self.penalises or self.unknown or self.masked or self.forbids)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Parameters by which the engine chose from other logits than its own lists show, in ways that nothing here
        computes for these."""
        return self.unknown + self.masked

    @property
    def only_takes_away(self) -> bool:
        """The unknown parameters forbid tokens: the best one that is left is never better than the best of all."""
        return _MASKS.issuperset(self.unknown)

    @property
    def penalises(self) -> bool:
        """The engine chose by other logits than lists show, in ways that are recomputed."""
        return bool(self.penalties)

    def penalised(self, completion: Completion) -> Penalised | None:
        """What changes its lists; None where nothing does."""
        if not self.penalties:
            return None
        return Penalised(self.penalties, completion.prompt_token_ids, self.logit_range)

    def within(self, logit_range: tuple[float, float]) -> Shaping:
        return replace(self, logit_range=logit_range)


def shaping_of(
    sampling: Mapping[str, Json], masked: frozenset[str] = frozenset(), *, knows_prompts: bool = True
) -> Shaping:
    """From sampling parameters by name (rows of parity/records/sampling.py). `masked`: those whose forbidden tokens are
    out of the lists. How likely they were together, these do not say: what bounds a draw takes them for not listed.
    `knows_prompts`: else nothing computes a repetition penalty, which moves the tokens of a prompt as well."""
    applied = APPLIED | masked
    found: dict[str, Any] = {}
    unknown, grammars = [], []
    for row in parameters():
        if row.effect not in (Effect.PENALISES, Effect.SHAPES) or not _is_on(row, sampling.get(row.name)):
            continue
        if row.name in applied:
            grammars += [row.name] if row.name in ASK_GRAMMARS else []
            continue
        value = _computed(row, sampling[row.name])
        if value is None or (row.name == "repetition_penalty" and not knows_prompts):
            unknown.append(row.name)
        else:
            found[_COMPUTED[row.name]] = value
    penalties = Penalties(**found)
    if penalties or unknown or temperature_in(sampling):  # which tokens are better than the chosen one, no list says
        unknown, grammars = unknown + grammars, []
    return Shaping(penalties, tuple(unknown), tuple(grammars), forbids=forbids(sampling))


def _is_on(row: Parameter, value: Json) -> bool:
    plain = row.plain(value)
    return bool(plain) and plain != row.plain(row.default)


def _computed(row: Parameter, value: Json) -> float | tuple[tuple[int, float], ...] | None:
    """The value as Penalties have it; None for what cannot be computed."""
    if row.name not in _COMPUTED:
        return None
    if row.name == "logit_bias":
        if not isinstance(value, Mapping):
            return None  # of somebody else's capture
        try:
            return tuple((int(token), float(added)) for token, added in value.items())
        except (TypeError, ValueError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if row.name != "repetition_penalty" or value > 0 else None
