"""parity: are two token streams the same, and if not, is it noise or a bug?

    import parity

    result = parity.compare("base.jsonl", "mtp.jsonl", scores="scores.jsonl")

Names are loaded when they are first used: `import parity` costs nothing. docs/api.md describes them.
"""

from importlib import import_module

from parity._version import __version__

TYPE_CHECKING = False  # as in typing, which takes a while to import
if TYPE_CHECKING:
    from parity.api import Plot, Result, compare
    from parity.capture import read_capture, read_scores, write_capture
    from parity.capture.outputs import capture_from_outputs
    from parity.errors import ParityError
    from parity.records import Capture, Completion, Finding, Header, Key, Kind, Severity, TopLogprobs, Verdict
    from parity.report.write import write_report
    from parity.store import Store

_HOMES = {
    "api": ("Plot", "Result", "compare"),
    "capture": ("read_capture", "read_scores", "write_capture"),
    "capture.outputs": ("capture_from_outputs",),
    "errors": ("ParityError",),
    "records": ("Capture", "Completion", "Finding", "Header", "Key", "Kind", "Severity", "TopLogprobs", "Verdict"),
    "report.write": ("write_report",),
    "store": ("Store",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Capture",
    "Completion",
    "Finding",
    "Header",
    "Key",
    "Kind",
    "ParityError",
    "Plot",
    "Result",
    "Severity",
    "Store",
    "TopLogprobs",
    "Verdict",
    "__version__",
    "capture_from_outputs",
    "compare",
    "read_capture",
    "read_scores",
    "write_capture",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"parity.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
