"""parity: are two token streams the same, and if not, is it noise or a bug?

    import parity

    result = parity.compare("base.jsonl", "mtp.jsonl", scores="scores.jsonl")

Names are loaded when they are first used: `import parity` costs nothing. docs/api.md describes them.
"""

from parity._version import __version__
from parity.lazily import attributes

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


__getattr__ = attributes(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
