"""Write what parity rests on in each released vLLM and vllm-ascend, beside the arguments: from their own sources.

    python tools/make_engine_contract.py DIRECTORY

DIRECTORY holds the archives that tools/make_argument_table.py reads (it says how to fetch them), and those of release
candidates of vllm-ascend that no release followed: `git archive --prefix=vllm_ascend-0.25.1rc1/ -o
DIRECTORY/vllm_ascend-0.25.1rc1.tar.gz v0.25.1rc1 vllm_ascend` in a clone of it. Written are
`tests/data/engine_contract.json` and `docs/engine-contract.md`; printed is what the newest release changed. Nothing
is imported: everything is read from syntax trees.

What is looked for stands in `engine_reads.py`: attributes that the worker and the fault lab read, methods that they
call or wrap, fields of the configurations that a header is read back from, with their defaults, names of counters. A
test (tests/unit/backends/test_engine_contract.py) holds parity's own sources to it.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from engine_reads import COUNTERS, COUNTERS_IN, READS
from make_argument_table import ARCHIVE, order, spans

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data" / "engine_contract.json"
PAGE = ROOT / "docs" / "engine-contract.md"

Facts = dict[str, set[str]]
"""What holds for one release, by section."""


WRITES = ("append", "clear", "copy_", "extend", "fill", "fill_", "update", "zero_")
"""Methods that change what they are called on."""


# ------------------------------------------------------------------ reading


def sources(path: Path) -> dict[str, ast.Module]:
    """Syntax trees of the files of one archive that `READS` names."""
    wanted = {file for owner in READS for file in (*owner.files, owner.ascend[0])} | set(COUNTERS_IN)
    return {inside: ast.parse(data.decode("utf-8-sig")) for inside, data in _members(path, wanted)}


def _members(path: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    """From an archive, or from a folder of installed packages."""
    if path.is_dir():
        yield from ((name, (path / name).read_bytes()) for name in sorted(wanted) if (path / name).is_file())
    elif path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist() if name in wanted)
    else:
        with tarfile.open(path) as archive:
            for member in archive:
                inside = member.name.partition("/")[2]
                if member.isfile() and inside in wanted:
                    file = archive.extractfile(member)
                    assert file is not None
                    yield inside, file.read()


def class_of(trees: dict[str, ast.Module], files: Iterable[str], name: str) -> ast.ClassDef | None:
    for file in files:
        for node in ast.walk(trees[file]) if file in trees else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
    return None


def methods_of(owner: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}


def members_of(owner: ast.ClassDef, *, defaults: bool) -> dict[str, str]:
    """Fields, attributes that any method sets, properties and methods, as facts by their names."""
    found: dict[str, str] = {}
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _of_self(node):
            found[node.attr] = node.attr
    for item in owner.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            default = f" = {default_of(item.value)}" if defaults and item.value is not None else ""
            found[item.target.id] = item.target.id + " ".join(default.split("\n"))
        elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            found[item.targets[0].id] = item.targets[0].id
    for name, method in methods_of(owner).items():
        if any(ast.unparse(mark).endswith("property") for mark in method.decorator_list):
            found[name] = name
        else:
            words = [arg.arg for arg in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs)]
            gives = f" -> {ast.unparse(method.returns)}" if method.returns is not None and name in SHAPES else ""
            found[name] = f"{name}({', '.join(word for word in words if word != 'self')}){gives}"
    return found


def default_of(value: ast.expr) -> str:
    """What a field is when nobody asks, however it is written: `Field(default=None, gt=0)` is `None`."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in ("Field", "field"):
        given = {word.arg: ast.unparse(word.value) for word in value.keywords}
        if value.args:
            return ast.unparse(value.args[0])
        if "default" in given:
            return given["default"]
        if "default_factory" in given:
            return f"{given['default_factory']}()"
    return ast.unparse(value)


SHAPES = ("parse_output", "_sample")
"""Methods of which others take apart what they return."""


def _of_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def filled_in(method: ast.AST) -> set[str]:
    """Attributes of self that a method sets, or whose content it changes."""
    found: set[str] = set()
    for node in ast.walk(method):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            targets = [node.func.value]
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                name = _root(one)
                if name:
                    found.add(name)
    return found


def _root(node: ast.expr) -> str:
    """`discard_request_mask` of `self.discard_request_mask.np[:n]`."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        if _of_self(node):
            assert isinstance(node, ast.Attribute)
            return node.attr
        node = node.value
    return ""


def calls_super(method: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
        and isinstance(node.func.value, ast.Call) and ast.unparse(node.func.value.func) == "super"
        for node in ast.walk(method)
    )  # fmt: skip


# ------------------------------------------------------------------ facts


def vllm_facts(trees: dict[str, ast.Module]) -> Facts:
    """What parity reads of one vLLM."""
    found: Facts = {owner.section: set() for owner in READS}
    for owner in READS:
        node = class_of(trees, owner.files, owner.name)
        members = members_of(node, defaults=owner.defaults) if node is not None else {}
        prefix = f"{owner.name}." if owner.section == "configuration" else ""
        found[owner.section] |= {prefix + members[name] for name in owner.reads if name in members}
    found["counters"] = {name for file in COUNTERS_IN for name in _strings(trees.get(file)) if name in COUNTERS}
    return found


def _strings(tree: ast.Module | None) -> set[str]:
    nodes = ast.walk(tree) if tree is not None else ()
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def ascend_facts(trees: dict[str, ast.Module], base: dict[str, ast.Module]) -> Facts:
    """What one vllm-ascend has in place of the vLLM that it belongs to, `base`: which of what is read it writes itself,
    and which it leaves to methods that it has overridden."""
    found: Facts = {}
    for owner in READS:
        file, name = owner.ascend
        node = class_of(trees, [file], name) if file else None
        above = class_of(base, owner.files, owner.name)
        if node is None or above is None:
            continue
        inherits = any(ast.unparse(base).endswith(owner.name) for base in node.bases)
        own, under = methods_of(node), methods_of(above) if inherits else {}
        facts = {f"{method}() is its own" for method in own if method in owner.reads}
        for read in owner.reads:
            fillers = {name for name, method in under.items() if name != "__init__" and read in filled_in(method)}
            mine = {name for name, method in own.items() if name != "__init__" and read in filled_in(method)}
            lost = {name for name in fillers if name in own and name not in mine and not calls_super(own[name], name)}
            if mine:
                facts.add(f"{read} is filled by its {', '.join(sorted(mine))}")
            elif fillers and lost == fillers:
                facts.add(f"{read} is never filled: {', '.join(sorted(lost))} of vLLM is overridden without it")
        here = set(members_of(node, defaults=False)) | (set(members_of(above, defaults=False)) if inherits else set())
        facts |= {f"no {read}" for read in owner.reads if read not in here}
        facts |= set() if inherits else {"does not derive from vLLM's"}
        found[owner.section] = facts
    return found


def read_archives(directory: Path) -> dict[str, dict[str, Facts]]:
    """Facts by package and release."""
    engines: dict[str, Path] = {}
    plugins: dict[str, Path] = {}
    for path in sorted(directory.iterdir()):
        match = ARCHIVE.fullmatch(path.name)
        if match is not None:
            package, version = match.groups()
            (plugins if package == "vllm_ascend" else engines)[version] = path
    of_plugins: dict[str, Facts] = {}
    for version, path in plugins.items():
        base = re.split(r"\.?post|rc", version)[0]
        if base not in engines:
            raise SystemExit(f"{path.name}: the vLLM that it belongs to, {base}, is not there")
        of_plugins[version] = ascend_facts(sources(path), sources(engines[base]))
    return {
        "vllm": {version: vllm_facts(sources(path)) for version, path in engines.items()},
        "vllm_ascend": of_plugins,
    }


# ------------------------------------------------------------------ writing


def as_data(read: dict[str, dict[str, Facts]]) -> dict[str, object]:
    """By package: its releases, and by section each fact with the releases that it holds for."""
    data: dict[str, object] = {"made by": "python tools/make_engine_contract.py DIRECTORY"}
    for package, releases in read.items():
        versions = sorted(releases, key=order)
        sections: dict[str, dict[str, str]] = {}
        for section in sorted({name for facts in releases.values() for name in facts}):
            every = sorted({fact for facts in releases.values() for fact in facts.get(section, ())})
            has = {fact: [fact in releases[version].get(section, ()) for version in versions] for fact in every}
            sections[section] = {fact: spans(there, versions) for fact, there in has.items()}
        data[package] = {"releases": versions, "facts": sections}
    return data


def changes(read: dict[str, Facts]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each release that changed something: what came, and what went."""
    versions = sorted(read, key=order)
    for earlier, later in pairwise(versions):
        came, went = [], []
        for section in sorted({*read[earlier], *read[later]}):
            before, after = read[earlier].get(section, set()), read[later].get(section, set())
            came += [f"{section}: `{fact}`" for fact in sorted(after - before)]
            went += [f"{section}: `{fact}`" for fact in sorted(before - after)]
        if came or went:
            yield later, came, went


INTRODUCTION = """\
# What parity rests on in the engines

Beside the [arguments](versions.md) the worker and the fault lab read attributes of the engine's own objects, wrap some
of its methods and read counters by their names, and a header is read back from the fields of its configuration. None
of that is promised by anybody. This page is what changed of it from release to release, read from the released sources
by syntax tree. `python tools/make_engine_contract.py DIRECTORY` writes this page and `tests/data/engine_contract.json`
and prints what the newest release changed: made, do not edit. `tests/unit/backends/test_engine_contract.py` fails
where the worker or the fault lab reads what is not listed there, or what a release has not and nobody has said so.

Candidates (`rc`) of vllm-ascend are here where no release followed them, each beside the vLLM of its number.

A default stands here where it is one of a setting that parity pins or reads back: what an engine does when nobody asks.
"""


def page(read: dict[str, dict[str, Facts]]) -> str:
    lines = [INTRODUCTION]
    for package, title in (("vllm", "vLLM"), ("vllm_ascend", "vllm-ascend")):
        versions = sorted(read[package], key=order)
        lines.append(f"## {title}, {versions[0]} to {versions[-1]}\n")
        if package == "vllm_ascend":
            lines.append(
                "Where its model runner takes the place of vLLM's: what it has of its own, and what parity reads that "
                "its own methods no longer fill.\n"
            )
            for section, facts in sorted(read[package][versions[0]].items()):
                lines += [f"- {versions[0]}, {section}: `{fact}`" for fact in sorted(facts)]
            lines.append("")
        lines += ["| release | came | went |", "|---|---|---|"]
        for version, came, went in changes(read[package]):
            cells = (" <br> ".join(part.replace("|", "\\|") for part in parts) for parts in (came, went))
            lines.append(f"| {version} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    read = read_archives(Path(sys.argv[1]))
    DATA.write_text(json.dumps(as_data(read), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(read), encoding="utf-8")
    for package, releases in read.items():
        newest = sorted(releases, key=order)[-1]
        changed = [(came, went) for version, came, went in changes(releases) if version == newest]
        print(f"{package} {newest}, since the release before it:{'' if changed else ' nothing'}")
        for came, went in changed:
            print("\n".join([*(f"  + {fact}" for fact in came), *(f"  - {fact}" for fact in went)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
