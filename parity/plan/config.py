"""The configuration file, `parity.toml`: hosts of backends, and defaults for the options of the command line.

[plan]                        # any option that makes a plan, by its name
backends = ["cuda", "npu-b"]
max-tokens = 256

[backends.npu-b]              # docs/hosts.md
adapter = "ascend"
command = "ssh npu1"

[variants.async]              # docs/hunt.md
extends = "mtp"
async_scheduling = true
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from parity.errors import ParityError, cannot_read
from parity.messages import message
from parity.plan.hosts import Host, read_host
from parity.plan.variants import Variant, read_variants
from parity.records import Json

FILE_NAME: Final = "parity.toml"
SECTIONS: Final = ("plan", "backends", "variants", "policy")


@dataclass(frozen=True, slots=True)
class Config:
    """What a configuration file says; empty where there is none."""

    source: str | None = None
    plan: Mapping[str, Json] = field(default_factory=dict)
    """Option values by the option's name, `-` and `_` alike."""
    hosts: Mapping[str, Host] = field(default_factory=dict)
    variants: Mapping[str, Variant] = field(default_factory=dict)
    policy: Mapping[str, Json] = field(default_factory=dict)


def find_config(path: Path | None = None) -> Config:
    """The file named, else `parity.toml` in the working directory, else nothing.

    Raises ParityError for a named file that is not there and for any mistake in one.
    """
    if path is not None:
        return read_config(path)
    here = Path(FILE_NAME)
    return read_config(here) if here.exists() else Config()


def read_config(path: Path) -> Config:
    """Read and check a configuration file. Raises ParityError naming the file and the place."""
    try:
        with path.open("rb") as file:
            value = tomllib.load(file)
    except OSError as error:
        hint = message("plan.check_path_given", "check the path given with --config or --policy")
        raise cannot_read(path, error, hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParityError(
            message("plan.not_toml", "{path} is not TOML: {said}", path=str(path), said=str(error)),
            hint=message("plan.docs_hosts_md", "docs/hosts.md has an example"),
        ) from error
    unknown = sorted(set(value) - set(SECTIONS))
    if unknown:
        raise ParityError(
            message("plan.no_section", "{path} has no section [{unknown}]", path=str(path), unknown=unknown[0]),
            hint=message("plan.known", "known: {sections}", sections=SECTIONS),
        )
    for name in ("plan", "backends", "policy"):
        if not isinstance(value.get(name, {}), dict):
            raise ParityError(
                message("plan.must_table", "{path}: {name} must be a table", path=str(path), name=name),
                hint=message("plan.write_settings_below", "write [{name}] and its settings below it", name=name),
            )
    source = str(path)
    return Config(
        source,
        value.get("plan", {}),
        {name: read_host(name, table, source) for name, table in value.get("backends", {}).items()},
        read_variants(value.get("variants", {}), source),
        value.get("policy", {}),
    )
