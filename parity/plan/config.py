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
from typing import Annotated, Final

import msgspec
from msgspec import Struct

from parity.errors import ParityError, cannot_read
from parity.files import read_whole
from parity.messages import message
from parity.plan.fields import Read, read_table
from parity.plan.hosts import Host, read_host
from parity.plan.variants import Variant, read_variants
from parity.records import Json

FILE_NAME: Final = "parity.toml"

_BELOW: Final = message("plan.write_sections", "write the section as [plan], and its settings below it")


def _table(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError(message("plan.must_be_table", "must be a table"))
    return value


Table = Annotated[Mapping[str, Json], Read(_table)]


class Sections(Struct, frozen=True):
    """The tables of the file. What `plan` may hold the command line knows, which reads it (`parity/cli/config.py`)."""

    plan: Table = msgspec.field(default_factory=dict)
    backends: Table = msgspec.field(default_factory=dict)
    variants: Table = msgspec.field(default_factory=dict)
    policy: Table = msgspec.field(default_factory=dict)


MAX_CONFIG_BYTES: Final = 1 << 20


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
        value = tomllib.loads(read_whole(path, MAX_CONFIG_BYTES).decode())
    except OSError as error:
        hint = message("plan.check_path_given", "check the path given with --config or --policy")
        raise cannot_read(path, error, hint) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, or an integer of thousands of digits
        raise ParityError(
            message("plan.not_toml", "{path} is not TOML: {said}", path=str(path), said=str(error)),
            hint=message("plan.docs_hosts_md", "docs/hosts.md has an example"),
        ) from error
    sections = read_table(Sections, value, str(path), write=_BELOW, hint=_BELOW)
    source = str(path)
    return Config(
        source,
        sections.plan,
        {name: read_host(name, table, source) for name, table in sections.backends.items()},
        read_variants(sections.variants, source),
        sections.policy,
    )
