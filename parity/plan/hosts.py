"""Where a backend runs: an interpreter here, or one behind a command prefix (ssh, docker exec, …).

A host belongs to a name that `--backends` takes. It is about a machine, not about the question asked, so it
is not in a plan: the same plan runs wherever its backends are.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct, structs

from parity.errors import ParityError
from parity.messages import message
from parity.plan.fields import Read, read_table, variables
from parity.records import Json
from parity.records.objects import object_of
from parity.secrecy import SHORTEST_HIDDEN, command_words, hidden_parts, is_held_back, is_secret, without_secrets

_BACKEND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]*")
_Groups = Annotated[list[int | str | Annotated[list[int | str], Meta(min_length=1)]], Meta(min_length=1)]
_SSH_OPTIONS_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")

_HERE: Final = frozenset(
    {
        "apptainer", "bash", "bwrap", "chroot", "conda", "docker", "enroot", "env", "firejail", "ionice", "mamba",
        "micromamba", "nerdctl", "nice", "nsenter", "numactl", "pixi", "podman", "poetry", "setsid", "sh",
        "singularity", "stdbuf", "sudo", "systemd-run", "taskset", "timeout", "unshare", "uv",
    }
)  # fmt: skip
"""Commands that stay on this machine, and so share its devices."""


def _text(value: Json) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(
            message("plan.must_text", "must be text, not {value}", value=json.dumps(value, default=str)[:60])
        )
    if "\0" in value:
        raise ValueError(message("plan.holds_nul", "holds a NUL character, which no command line can carry"))
    return value


def _command(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ParityError(
                message(
                    "plan.no_command", "{value!r} is no command: {said}", value=without_secrets(value), said=str(error)
                ),
                hint=message("plan.close_every_quotation", "close every quotation mark"),
            ) from None
    if not isinstance(value, list | tuple):
        raise TypeError(
            message("plan.must_words", "must be a list of words, or one line that a shell would split into them")
        )
    return tuple(_text(word) for word in value)


def _devices(value: Json) -> tuple[str, ...]:
    try:
        given = msgspec.convert(value, _Groups)
    except msgspec.ValidationError:
        raise TypeError(
            message(
                "plan.must_device_groups",
                'must be groups of devices, such as [["0", "1"], ["2", "3"]] or ["0,1", "2,3"]',
            )
        ) from None
    groups = [",".join(str(one).strip() for one in (group if isinstance(group, list) else [group])) for group in given]
    if not all(groups):
        raise ValueError(message("plan.empty_group", "has an empty group"))
    return tuple(groups)


def _count(value: Json, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TypeError(message("plan.must_at_least", "must be a whole number, at least {least}", least=least))
    return value


def _engine(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError(message("plan.must_engine_table", "must be a table of engine settings"))
    if "speculative_config" in value:
        raise ValueError(
            message("plan.sets_speculation", "sets speculative_config: speculation belongs to the variant")
        )
    if "model" in value and "url" not in value:  # a server has a model of its own
        raise ValueError(
            message(
                "plan.sets_model", "sets model: where the checkpoint is, says the setting `model` of the backend itself"
            )
        )
    return dict(value)


class Host(Struct, frozen=True, omit_defaults=True):
    """How the engines of one backend are reached. Every field but the first two may be left out."""

    name: str
    """What `--backends` calls it; the part of an arm's name before the slash."""
    adapter: Annotated[str, Read(_text)]
    """The installed adapter: cuda, ascend, cpu, …"""
    command: Annotated[tuple[str, ...], Read(_command)] = ()
    """Goes before the interpreter, word for word: `("ssh", "gpu1")`. Empty: this machine."""
    python: Annotated[str | None, Read(_text)] = None
    """The interpreter that has the engine. None: the adapter's choice here, `python3` behind a command."""
    model: Annotated[str | None, Read(_text)] = None
    """The checkpoint's directory there, where it differs from the plan's."""
    env: Annotated[Mapping[str, str], Read(variables)] = msgspec.field(default_factory=dict)
    """Environment of the engine there, over the arm's own."""
    setup: Annotated[str | None, Read(_text)] = None
    """Shell text that bash reads first, such as `source /usr/local/Ascend/ascend-toolkit/set_env.sh`."""
    devices: Annotated[tuple[str, ...], Read(_devices)] = ()
    """A group of devices for each replica: `("0,1,2,3", "4,5,6,7")`. Empty: all that the process sees."""
    replicas: Annotated[int, Read(_count)] = 1
    """Workers of one arm, where no devices are named."""
    engine: Annotated[Mapping[str, Json], Read(_engine)] = msgspec.field(default_factory=dict)
    """Engine settings of this backend's arms; part of the plan, unlike the rest."""
    place: Annotated[str | None, Read(_text)] = None
    """Backends of one place take turns. None: found from the command."""
    shells: Annotated[int | None, Read(partial(_count, least=0))] = None
    """How many shells read the command line on its way. None: one for each `ssh` in the command."""
    start_timeout: Annotated[int | None, Read(_count)] = None
    """Seconds that an engine may take to start there. None: half an hour."""
    stall_timeout: Annotated[int | None, Read(_count)] = None
    """Seconds that a working engine may say nothing. None: the adapter's, a quarter of an hour where it has none."""
    load_ahead: bool = True
    """Whether an engine's code is loaded while the arm before runs, where memory allows."""

    @property
    def far(self) -> bool:
        """Whether a command stands before the interpreter: then nothing can be looked up here."""
        return bool(self.command)

    @property
    def workers(self) -> int:
        return len(self.devices) or self.replicas

    @property
    def turn(self) -> str:
        """Backends with the same value share devices, and so take turns."""
        return self.place if self.place is not None else place_of(self.command)

    @property
    def quoting(self) -> int:
        """How many times what follows the command must be quoted."""
        return self.shells if self.shells is not None else sum(_base(word) == "ssh" for word in self.command)

    @property
    def secrets(self) -> list[str]:
        """What is to be said nowhere, also where the host itself says it."""
        kept = [value for name, value in self.env.items() if is_secret(name, value) and len(value) >= SHORTEST_HIDDEN]
        return kept + hidden_parts([*self.command, *([self.setup] if self.setup else [])])

    def to_json(self) -> dict[str, Json]:
        """As it stands in a configuration file, for a run directory: without what looks like a secret."""
        written: dict[str, Json] = without_secrets(
            {**msgspec.to_builtins(self), **({"command": command_words(list(self.command))} if self.command else {})}
        )
        return {name: value for name, value in written.items() if name != "name"}


def restored(host: Host, configured: Host | None) -> Host:
    """A host that was written down without its secrets, with those of the configuration.

    Raises ParityError for one that is not there.
    """
    lost = [name for name in ("command", "setup", "env") if is_held_back(repr(getattr(host, name)))]
    mended = host if configured is None else structs.replace(host, **{name: getattr(configured, name) for name in lost})
    still = [name for name in lost if is_held_back(repr(getattr(mended, name)))]
    if still:
        raise ParityError(
            message(
                "plan.secret_not_kept",
                "backend {name!r}: its {fields} held a secret, which is written down nowhere",
                name=host.name,
                fields=still,
            ),
            hint=message(
                "plan.secret_again", "give it again: --host {name}=COMMAND, or in [backends.{name}]", name=host.name
            ),
        )
    return mended


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def place_of(command: Sequence[str]) -> str:
    """A name for the machine that a command prefix leads to; "" is this one.

    The destination of the last ssh in it, else this machine for containers and wrappers (`docker`, `env`, …),
    else the command itself: `kubectl exec` leads to some node, and a script of one's own to who knows where.
    """
    place = ""
    for index, word in enumerate(command):
        if _base(word) == "ssh":
            place = _destination(command[index + 1 :]) or place
    if place or not command or _base(command[0]) in _HERE:
        return place
    return shlex.join(command)


def _destination(words: Sequence[str]) -> str | None:
    """The host in ssh's arguments, with the port where one is given."""
    port = ""
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word.startswith("-") and len(word) > 1:
            if word[1] == "p":
                port = ":" + (word[2:] or (words[index + 1] if index + 1 < len(words) else ""))
            skip = len(word) == 2 and word[1] in _SSH_OPTIONS_WITH_VALUE
        else:
            return word.rsplit("@", 1)[-1] + port
    return None


# --------------------------------------------------------------------------- reading


def read_host(name: str, table: Json, source: str) -> Host:
    """A host from the table `[backends.NAME]`. Raises ParityError naming `source` and the field."""
    where = f"{source}: [backends.{name}]"
    if not _BACKEND.fullmatch(name):
        raise ParityError(
            message("plan.cannot_name_backend", "{where}: {name!r} cannot name a backend", where=where, name=name),
            hint=message("plan.use_letters_digits", "use letters, digits, '.', '_', '+', '-'"),
        )
    host = read_table(
        Host,
        {"adapter": name, **table} if isinstance(table, dict) else table,
        where,
        write=message("plan.write_backends_settings", "write [backends.{name}] and its settings below it", name=name),
        hint=message("plan.docs_hosts_md_describes", "docs/hosts.md describes each setting"),
        name=name,
    )
    if "replicas" in object_of(table) and host.devices and host.replicas != len(host.devices):
        raise ParityError(
            message(
                "plan.replicas_but_devices",
                "{where}: replicas is {replicas}, but devices has {count} groups",
                where=where,
                replicas=host.replicas,
                count=len(host.devices),
            ),
            hint=message("plan.leave_replicas_out", "leave replicas out: each group of devices is a replica"),
        )
    return host


def with_flags(
    hosts: Mapping[str, Host],
    names: Sequence[str],
    *,
    command: Mapping[str, str],
    python: Mapping[str, str],
    model: Mapping[str, str],
) -> dict[str, Host]:
    """A host for each of `names`: those of the configuration, changed by `--host`, `--python`, `--model-path`.

    Raises ParityError for a flag that names none of them.
    """
    for flag, given in (("--host", command), ("--python", python), ("--model-path", model)):
        stray = [name for name in given if name not in names]
        if stray:
            raise ParityError(
                message(
                    "plan.names_no_backend", "{flag} {stray}=… names no backend of this run", flag=flag, stray=stray[0]
                ),
                hint=message("plan.backends", "the backends are {names}", names=names),
            )
    out: dict[str, Host] = {}
    for name in names:
        host = hosts.get(name) or Host(name, name)
        if name in command:
            host = structs.replace(host, command=_command(command[name]))
        if name in python:
            host = structs.replace(host, python=python[name])
        if name in model:
            host = structs.replace(host, model=model[name])
        out[name] = host
    return out


def host_of(hosts: Mapping[str, Host], arm_name: str, adapter: str) -> Host:
    """The host that an arm runs on: by the part of its name before the slash, else its adapter here."""
    name = arm_name.partition("/")[0]
    return hosts.get(name) or Host(name, adapter)
