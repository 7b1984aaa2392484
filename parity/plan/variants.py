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
from dataclasses import dataclass, field
from typing import Final

from parity.errors import ParityError
from parity.messages import message
from parity.records import Json

SPECULATION_DECIDES: Final = ("base", "mtp")
"""An axis over num_speculative_tokens takes the place of these."""

DEPLOYED: Final = "deployed"
"""The engine as it runs in production: by its own defaults, or as a deployment has it (`--like`)."""

BUILT_IN: Final = (*SPECULATION_DECIDES, DEPLOYED)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings on top of what another variant has."""

    name: str
    extends: str = "base"
    num_speculative_tokens: int | None = None
    engine: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def read_variants(table: Json, source: str) -> dict[str, Variant]:
    """From the table `variants` of a configuration file. Raises ParityError naming `source` and the field."""
    if not isinstance(table, Mapping):
        raise ParityError(
            message("plan.variants_must_table", "{source}: variants must be a table", source=source),
            hint=message("plan.write_variants_name", "write [variants.NAME] and settings below it"),
        )
    found = {str(name): _variant(str(name), value, source) for name, value in table.items()}
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
    if not isinstance(table, Mapping):
        raise ParityError(
            message("plan.must_table_2", "{where} must be a table", where=where),
            hint=message("plan.give_settings_vllm", "give it settings of vllm.LLM, one a line"),
        )
    engine = {key: value for key, value in table.items() if key not in ("extends", "num_speculative_tokens", "env")}
    for key in ("model", "speculative_config"):
        if key in engine:
            raise ParityError(
                message("plan.cannot_stand_here", "{where}: {key} cannot stand here", where=where, key=key),
                hint=message("plan.use_extends_num", "use extends and num_speculative_tokens"),
            )
    extends, tokens, env = table.get("extends", "base"), table.get("num_speculative_tokens"), table.get("env", {})
    if not isinstance(extends, str):
        raise ParityError(
            message("plan.extends", "{where}: extends is {extends!r}", where=where, extends=extends),
            hint=message("plan.name_variant_such", "name a variant, such as base or mtp"),
        )
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        raise ParityError(
            message(
                "plan.num_speculative_tokens",
                "{where}: num_speculative_tokens is {tokens!r}",
                where=where,
                tokens=tokens,
            ),
            hint=message("plan.give_whole_number", "give a whole number from 1 up"),
        )
    if not isinstance(env, Mapping) or any(not isinstance(value, str | int | float) for value in env.values()):
        raise ParityError(
            message("plan.env_must_table", "{where}: env must be a table of texts", where=where),
            hint=message("plan.such_env_name", 'such as env.NAME = "1"'),
        )
    return Variant(name, extends, tokens, engine, {key: str(value) for key, value in env.items()})


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
