"""Variants of one's own: `[variants.NAME]` in parity.toml, beside the `base` and `mtp` that adapters bring.

[variants.async]
extends = "mtp"                 # or base, or another variant of this file
num_speculative_tokens = 3      # instead of -k
async_scheduling = true         # any argument of vllm.LLM
env.VLLM_USE_V2_MODEL_RUNNER = "0"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from parity.errors import ParityError
from parity.messages import message
from parity.plan.fields import Hint, Read, read_table, variables
from parity.records import Json
from parity.records.objects import object_of

SPECULATION_DECIDES: Final = ("base", "mtp")
"""An axis over num_speculative_tokens takes the place of these."""

DEPLOYED: Final = "deployed"
"""The engine as it runs in production: by its own defaults, or as a deployment has it (`--like`)."""

BUILT_IN: Final = (*SPECULATION_DECIDES, DEPLOYED)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


_Tokens = Annotated[int, Meta(ge=1), Hint(message("plan.give_whole_number", "give a whole number from 1 up"))]


class Variant(Struct, frozen=True):
    """Settings on top of what another variant has."""

    name: str
    extends: Annotated[str, Hint(message("plan.name_variant_such", "name a variant, such as base or mtp"))] = "base"
    num_speculative_tokens: _Tokens | None = None
    engine: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """Arguments of `vllm.LLM`: all that the table has besides the other fields."""
    env: Annotated[Mapping[str, str], Read(variables, message("plan.such_env_name", 'such as env.NAME = "1"'))] = (
        msgspec.field(default_factory=dict)
    )


_OWN: Final = ("extends", "num_speculative_tokens", "env")
_GIVE: Final = message("plan.give_settings_vllm", "give it settings of vllm.LLM, one a line")


def read_variants(table: Mapping[str, Json], source: str) -> dict[str, Variant]:
    """From the table `variants` of a configuration file. Raises ParityError naming `source` and the field."""
    found = {name: _variant(name, value, source) for name, value in table.items()}
    for name in found:
        resolve(name, found, source)
    return found


def _variant(name: str, table: Json, source: str) -> Variant:
    where = f"{source}: [variants.{name}]"
    if not _NAME.fullmatch(name) or name in BUILT_IN:
        raise ParityError(
            message("plan.cannot_name_variant", "{where}: {name!r} cannot name a variant", where=where, name=name),
            hint=message(
                "plan.use_letters_digits_base",
                "use letters, digits, '.', '_', '-'; base, mtp and deployed are the adapters' own",
            ),
        )
    given = object_of(table)
    engine = {key: value for key, value in given.items() if key not in _OWN}
    if "model" in engine:
        raise ParityError(
            message("plan.cannot_stand_here", "{where}: {key} cannot stand here", where=where, key="model"),
            hint=message("plan.use_model", "use --model"),
        )
    _check_speculation(given, where)
    own = {key: given[key] for key in _OWN if key in given} if isinstance(table, dict) else table
    return read_table(Variant, own, where, write=_GIVE, hint=_GIVE, name=name, engine=engine)


def _check_speculation(given: Mapping[str, Json], where: str) -> None:
    """Drafts that are no model's prediction layers, such as n-grams. Raises ParityError."""
    if "speculative_config" not in given:
        return
    drafts = object_of(given["speculative_config"])
    if "num_speculative_tokens" in given or not {"method", "num_speculative_tokens"} <= set(drafts):
        raise ParityError(
            message(
                "plan.drafts_of_variant",
                "{where}: speculative_config needs its method and its num_speculative_tokens, which stand nowhere else",
                where=where,
            ),
            hint=message(
                "plan.such_drafts",
                'such as speculative_config = {{ method = "ngram", num_speculative_tokens = 2 }}',
            ),
        )


def resolve(name: str, variants: Mapping[str, Variant], source: str = "parity.toml") -> Variant:
    """The variant with everything that it extends, its root in `extends`.

    A name that is not in `variants` is taken for an adapter's own. Raises ParityError where variants extend
    each other in a circle.
    """
    chain: list[Variant] = []
    root = name
    while root in variants:
        if any(variant.name == root for variant in chain):
            raise ParityError(
                message(
                    "plan.variants_extend_each",
                    "{source}: the variants {root} and {chain} extend each other",
                    source=source,
                    root=root,
                    chain=chain[-1].name,
                )
            )
        chain.append(variants[root])
        root = chain[-1].extends
    engine: dict[str, Json] = {}
    env: dict[str, str] = {}
    tokens: int | None = None
    for variant in reversed(chain):
        engine.update(variant.engine)
        env.update(variant.env)
        tokens = variant.num_speculative_tokens if variant.num_speculative_tokens is not None else tokens
    return Variant(name, root, tokens, engine, env)
