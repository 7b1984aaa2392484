"""Several modules as one file that needs nothing beside it: the form in which a worker travels.

The modules are written one after another in the order given, their imports gathered at the top. So a person who
carries the file to another host can read all of it.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import resources

FIRST = (
    "parity_backends.worker:asked",
    "parity:plurals",
    "parity_backends.worker:sentences",
    "parity_backends.worker:protocol",
    "parity_backends.worker:sampling",
    "parity_backends.worker:records",
)
"""What every worker program of a plan begins with."""

RULE = "# " + "-" * 30 + " "

TOO_OLD = """if sys.version_info < (3, 9):
    sys.exit("%s is Python %s: this file needs 3.9 or newer, the Python that has vLLM"
             % (sys.executable, sys.version.split()[0]))"""
"""Before anything is defined: what comes after may not even load there."""


@cache
def bundle(package: str, modules: tuple[str, ...]) -> bytes:
    """Source of one file from `modules` ("name", or "package:name" for one that lives elsewhere) of `package`.

    The docstring of the package comes first. Raises ValueError for modules that do not add up to one: an import of
    ours under another name or of a module that comes later, a name defined twice.
    """
    opening = ast.get_docstring(ast.parse(_source(package, "__init__")), clean=False)
    imports = _Imports()
    defined: dict[str, str] = {}
    parts: list[str] = []
    for module in modules:
        home, _, name = module.rpartition(":")
        source = _source(home or package, name)
        tree = ast.parse(source)
        body = imports.taken_from(source, tree, module, defined)
        for defines in _definitions(tree):
            if defined.setdefault(defines, module) != module:
                raise ValueError(f"{defines} is defined in {defined[defines]} and in {module}")
        parts.append(f"{RULE}{name}.py\n\n{body}")
    imports.add("sys")
    head = f'"""{opening}"""\n\nfrom __future__ import annotations\n\n{imports}\n\n{TOO_OLD}'
    return ("\n\n\n".join([head, *parts]) + "\n").encode()


def _source(package: str, module: str) -> str:
    return resources.files(package).joinpath(f"{module}.py").read_text(encoding="utf-8")


def _definitions(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return names


class _Imports:
    """The imports at the top of all modules, each once."""

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._names: dict[str, set[str]] = {}

    def add(self, module: str) -> None:
        self._modules.add(module)

    def __str__(self) -> str:
        lines = [f"import {name}" for name in sorted(self._modules)]
        lines += [f"from {name} import {', '.join(sorted(names))}" for name, names in sorted(self._names.items())]
        return "\n".join(lines)

    def taken_from(self, source: str, tree: ast.Module, module: str, defined: dict[str, str]) -> str:
        """`source` without the imports at its top level."""
        lines = source.split("\n")
        for node in tree.body:
            if isinstance(node, ast.Import):
                self._modules.update(_spelled(alias) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                ours = node.level > 0 or str(node.module).startswith(("parity.", "parity_backends."))
                for alias in node.names if ours else ():
                    if alias.asname is not None:
                        raise ValueError(f"{module} imports {_spelled(alias)}: in one file it has one name")
                    if alias.name not in defined:
                        raise ValueError(f"{module} imports {alias.name}, which no module before it defines")
                if not ours and node.module != "__future__":
                    self._names.setdefault(str(node.module), set()).update(_spelled(alias) for alias in node.names)
            else:
                continue
            assert node.end_lineno is not None
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
        return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip()


def _spelled(alias: ast.alias) -> str:
    return alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
