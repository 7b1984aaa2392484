"""The options of `parity run` that ask an arm anew: engines by backend and variant, servers by their URL; and those
that ask for the same sampling."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from parity.records import Json
from parity.records.engine_settings import asked_of, draft_tokens, speculates
from parity.records.parameter import Form, Parameter
from parity.records.sampling import asked
from parity.run import backend_names
from parity.view.arm import ArmView
from parity.view.at_hand import REPLAY, SERVER


def options_of(arm: ArmView) -> tuple[str, ...] | None:
    """None for a recording."""
    return options_of_all([arm])


def options_of_all(arms: Sequence[ArmView]) -> tuple[str, ...] | None:
    """Of all of them in one run, the first one's backend first; None where one is a recording, or where the options do
    not tell two of them apart."""
    if not all(_can_be_asked(one) for one in arms):
        return None
    if len({(one.backend, one.variant if one.backend == SERVER else speculates(one.settings)) for one in arms}) < len(
        arms
    ):
        return None
    servers = [one for one in arms if one.backend == SERVER]
    engines = [one for one in arms if one.backend != SERVER]
    found = [word for one in servers for word in _of_server(one, alone=len(servers) == 1)]
    if engines:
        variants = ["mtp" if speculates(one.settings) else "base" for one in engines]
        backends = [one.backend for one in engines]
        found += ["--backends", ",".join(dict.fromkeys(backends)), "--variants", ",".join(dict.fromkeys(variants))]
    drafts = [draft_tokens(one.settings) or 1 for one in engines if speculates(one.settings)]
    return (*found, *(("-k", str(max(drafts))) if drafts else ()))


def sampling_options(sampling: Mapping[str, Json]) -> tuple[str, ...]:
    """The options that ask for these parameters, as a capture names them; of those at their default none, but for the
    number of tokens."""
    return tuple(
        word
        for row in asked()
        if row.compared or row.name == "logprobs"
        for word in _of_parameter(row, sampling.get(row.name))
    )


def _of_parameter(row: Parameter, value: Json) -> Iterator[str]:
    if value is None or (row.plain(value) == row.plain(row.default) and row.assumed):
        return
    flag = f"--{row.name.replace('_', '-')}"
    if row.form is Form.FLAG:
        yield flag if value else f"--no-{flag[2:]}"
    elif row.form is Form.TOKENS and isinstance(value, Sequence):
        yield from (flag, ",".join(map(str, value)))
    elif row.form is Form.TEXTS and isinstance(value, Sequence):
        yield from (word for text in value for word in (flag, str(text)))
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from (flag, f"{name}={one if isinstance(one, str) else json.dumps(one)}")
    else:
        yield from (flag, str(value))


def _can_be_asked(arm: ArmView) -> bool:
    if arm.backend == SERVER:
        return isinstance(asked_of(arm.engine).get("url"), str)
    return arm.backend != REPLAY and arm.backend.partition("@")[0] in backend_names()


def _of_server(arm: ArmView, *, alone: bool) -> Sequence[str]:
    asked = asked_of(arm.engine)
    of_it = "" if alone else f"{arm.variant}:"
    others = (
        f"{of_it}{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in asked.items()
        if name != "url" and value is not None
    )
    options = (word for one in others for word in ("--server-option", one))
    return ("--server", f"{arm.variant}={asked['url']}", *options)
