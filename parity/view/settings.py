"""The settings that tell the arms of a run apart, in a few words."""

from __future__ import annotations

from collections.abc import Mapping

from parity.records import Json
from parity.records.engine_settings import asked_of, draft_tokens, setting_called

_NOT_SETTINGS = frozenset({"asked", "capture", "scores"})


def told_apart(engines: Mapping[str, Mapping[str, Json]]) -> dict[str, str]:
    """For each arm the settings in which not all arms agree, as its engine resolved them, else as it was asked.

    `k=3, async=true, graph=PIECEWISE`; the number of speculative tokens is always there.
    """
    flat = {arm: _flat(engine) for arm, engine in engines.items()}
    resolved = {arm for arm, engine in engines.items() if isinstance(engine.get("asked"), Mapping)}
    names = dict.fromkeys(name for settings in flat.values() for name in settings)
    differ = []
    for name in names:
        # An engine that never started says nothing of a setting that nobody asked it for.
        values = {_word(each.get(name)) for arm, each in flat.items() if name in each or arm in resolved}
        if name != "k" and len(values) > 1:
            differ.append(name)
    return {
        arm: _told(settings, [n for n in differ if n in settings or arm in resolved]) for arm, settings in flat.items()
    }


def _word(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).removeprefix("torch.")


def _told(settings: Mapping[str, Json], names: list[str]) -> str:
    parts = [f"k={settings['k']}"]
    for name in sorted(names, key=lambda name: name.rpartition(".")[2]):
        row = setting_called(name)
        parts.append(f"{(row.short if row else '') or name}={_word(settings.get(name))}")
    return ", ".join(parts)


def _flat(engine: Mapping[str, Json]) -> dict[str, Json]:
    asked = asked_of(engine)
    settings: dict[str, Json] = {}
    for source in (asked, engine):
        for name, value in (source or {}).items():
            if name == "compilation_config" and isinstance(value, Mapping):
                settings.update({f"{name}.{key}": inner for key, inner in value.items() if key != "cudagraph_mode"})
                if "cudagraph_mode" in value and "cudagraph_mode" not in settings:
                    settings["cudagraph_mode"] = value["cudagraph_mode"]
            elif name not in _NOT_SETTINGS and _tells_apart(name) and not isinstance(value, Mapping):
                settings[name] = value
    settings.pop("num_speculative_tokens", None)
    settings["k"] = draft_tokens(engine)
    return settings


def _tells_apart(name: str) -> bool:
    row = setting_called(name)
    return row is None or row.tells_apart
