"""Write the table of `vllm serve`'s flags, from the sources of one or more releases.

    python tools/make_serve_table.py DIRECTORY... > backends/parity_backends/vllm/serve/flags.json

Each DIRECTORY is the package `vllm` of a release: of an installed one, or of an unpacked source distribution. Flags of
the engine are fields of `EngineArgs`, those of the server alone fields of its front end's dataclasses (and the few that
its parser adds by hand); what a flag takes is read from the annotation. Nothing is imported.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FRONT_ENDS = ("entrypoints/launchers/cli_args.py", "entrypoints/openai/cli_args.py")
"""Where the flags of the server are: from 0.28 on, and before."""

ENGINE = "engine/arg_utils.py"

EARLIER = {"disable_log_requests": "switch", "disable_frontend_multiprocessing": "switch"}
"""Flags of the server in vLLM 0.11, gone since."""

NUMBERS = {"optimization_level": "int", "max_lora_rank": "int"}
"""Flags whose annotation is the name of a type of its own."""


def fields(tree: ast.Module, wanted: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Names and annotations of the fields of the dataclasses whose names match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and wanted.fullmatch(node.name):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield item.target.id, ast.unparse(item.annotation)


def options(tree: ast.Module) -> Iterator[tuple[list[str], bool]]:
    """Spellings of every option that is added by hand, and whether it takes no value."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"):
            continue
        spelled = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        actions = [ast.unparse(word.value) for word in node.keywords if word.arg == "action"]
        flag = any("store_true" in action or "BooleanOptionalAction" in action for action in actions)
        yield spelled, flag


def kind(annotation: str) -> str:
    """What a flag with this annotation takes."""
    words = set(re.findall(r"[A-Za-z_]\w*", annotation))
    if "bool" in words and "str" not in words:
        return "switch"
    if words & {"list", "tuple", "set", "List"}:
        return "list"
    if words & {"dict", "Dict"} or any(word.endswith("Config") for word in words):
        return "json"
    for name in ("int", "float"):
        if name in words:
            return name
    return "text"


def name_of(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def read(package: Path) -> dict[str, dict[str, str]]:
    """`engine`, `server` (name to kind) and `short` (short flag to name) of a release."""
    found: dict[str, dict[str, str]] = {"engine": {}, "server": {}, "short": {}}
    engine = ast.parse((package / ENGINE).read_text(encoding="utf-8"))
    of_engine = fields(engine, re.compile("EngineArgs"))
    found["engine"] = {name: NUMBERS.get(name) or kind(written) for name, written in of_engine if name[0] != "_"}
    fronts = [package / file for file in FRONT_ENDS if (package / file).is_file()]
    server: dict[str, str] = {}
    for front in fronts:
        tree = ast.parse(front.read_text(encoding="utf-8"))
        server |= {name: kind(annotation) for name, annotation in fields(tree, re.compile(r"\w*FrontendArgs"))}
        for spelled, switch in options(tree):
            server |= {name_of(one): "switch" if switch else "text" for one in spelled if one.startswith("--")}
            found["short"] |= shorts(spelled)
    server |= {name: kind(annotation) for name, annotation in fields(engine, re.compile("AsyncEngineArgs"))}
    for spelled, _ in options(engine):
        found["short"] |= shorts(spelled)
    found["server"] = {name: what for name, what in server.items() if name not in found["engine"]}
    return found


def shorts(spelled: list[str]) -> dict[str, str]:
    long = [name_of(one) for one in spelled if one.startswith("--")]
    return {one: long[0] for one in spelled if long and one.startswith("-") and not one.startswith("--")}


def main(directories: list[str]) -> None:
    merged: dict[str, dict[str, str]] = {"engine": {}, "server": dict(EARLIER), "short": {}}
    for directory in directories:  # the last one named has the last word
        for part, found in read(Path(directory)).items():
            merged[part] |= found
    grouped: dict[str, object] = {"short": dict(sorted(merged["short"].items()))}
    for part in ("engine", "server"):
        kinds = sorted(set(merged[part].values()))
        grouped[part] = {
            one: " ".join(sorted(name for name, what in merged[part].items() if what == one)) for one in kinds
        }
    json.dump(grouped, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
