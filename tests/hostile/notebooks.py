"""What a notebook shows of captures of somebody else: `repr`, `_repr_html_`, plots, reports, rows, and a stored run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asked import Asked
from judging import Ended, Place, judged, leaks, place, waited
from stores import MOVES, base, copied

MARKUP = "<script>alert(1)</script><img src=x onerror=y>\"'>]]>--><svg onload=z>" + MOVES

SCRIPT = r"""
import sys, warnings
import parity

result = parity.compare(sys.argv[1], sys.argv[2], **({"scores": sys.argv[3]} if len(sys.argv) > 3 else {}))
shown = {"repr": repr(result), "html": str(result._repr_html_())}
shown |= {f"plot {name}": plot._repr_svg_() for name, plot in result.plots().items()}
shown |= {f"plot repr {name}": repr(plot) for name, plot in result.plots().items()}
shown |= {f"report {name}": result.report(name) for name in ("md", "html", "json", "junit", "sarif", "github")}
rows = (result.to_rows(), result.completion_rows(), result.token_rows(), result.to_json())
shown["capture"] = repr(result.candidate)[:2000]
run = result.save("notebook.db")
for name, text in shown.items():
    print("<<<", name, len(text))
    for word in ("\x1b", "\u202e", "\x07"):
        if word in text:
            print("ESCAPES in", name)
    if name in ("html",) or name.startswith(("plot ", "report html")):
        from lxml import html
        tree = html.fromstring(text)
        allowed = 1 if name == "report html" else 0
        scripts = [one for one in tree.iter("script") if one.get("type") != "application/json"]
        if len(scripts) > allowed or any(True for _ in tree.iter("img", "iframe", "object", "embed")):
            print("MARKUP in", name)
        if any(key.startswith("on") for one in tree.iter() if isinstance(one.tag, str) for key in one.attrib):
            print("HANDLER in", name)
print("DONE", run)
"""


def header(**fields: Any) -> Any:
    return lambda lines: lines[0].update(fields)


def each(**fields: Any) -> Any:
    def change(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["record"] == "completion":
                line.update(fields)

    return change


CASES: dict[str, Any] = {
    "honest": lambda lines: None, "an arm of markup": header(arm=MARKUP), "a model of markup": header(model=MARKUP), "a backend of markup": header(backend=MARKUP, variant=MARKUP),
    "text of markup": each(text=MARKUP * 3), "a finish reason of markup": each(finish_reason=MARKUP), "a stop reason of markup": each(stop_reason=MARKUP),
    "an environment of markup": header(environment={"versions": {MARKUP: MARKUP}, "devices": [{"name": MARKUP}]}), "an engine of markup": header(engine={MARKUP: MARKUP, "dtype": MARKUP}),
    "requests of markup": lambda lines: [line.update(request=MARKUP + line["request"]) for line in lines if "request" in line],
    "text of a megabyte": each(text="<b>" * 300_000), "ids of 2^31": lambda lines: [line.update(token_ids=[2**31 - 1] * len(line["token_ids"])) for line in lines if line["record"] == "completion"],
    "an arm of 10,000 letters": header(arm="x" * 10_000), "no completions": lambda lines: lines.__setitem__(slice(None), [line for line in lines if line["record"] != "completion"]),
}  # fmt: skip
SHORT = ("an arm of markup", "text of markup")


def campaign(asked: Asked) -> Iterator[Ended]:
    """A candidate of somebody else compared in Python, all that a notebook shows of it looked at."""
    with place() as first:
        yield base(first)
        for name in SHORT if asked.short else asked.piece(list(CASES)):
            with place() as here:
                copied(first, here)
                yield shown(here, name)


def shown(here: Place, name: str) -> Ended:
    captures = sorted((here.work / "run").glob("fake-*.jsonl"))
    candidate, baseline = (next(one for one in captures if part in one.name) for part in ("mtp", "base"))
    lines = [json.loads(line) for line in candidate.read_text().splitlines()]
    CASES[name](lines)
    for line in lines:
        line.pop("crc32", None)
        line.pop("crc", None)
    path = here.work / "theirs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out, err = here.root / "out.txt", here.root / "err.txt"
    began = time.monotonic()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(baseline), str(path)], cwd=here.work, stdin=subprocess.DEVNULL,
                                   stdout=stdout, stderr=stderr, env=here.environment({}), start_new_session=True)  # fmt: skip
        code, peak = waited(process, 90.0)
    ended = Ended(
        f"notebook: {name}", code, time.monotonic() - began, peak >> 10, out.read_text(), err.read_text()[-4000:]
    )
    refused = "ParityError" in ended.err or "CaptureError" in ended.err or "Malformed" in ended.err
    ended.problems += [] if refused else judged(ended, (0,), 700)
    ended.problems += [line for line in ended.out.splitlines() if line.startswith(("ESCAPES", "MARKUP", "HANDLER"))]
    if not refused and "DONE" not in ended.out:
        ended.problems.append("not at its end")
    ended.problems += leaks(here.root, ended)
    assert Path(path).exists()
    return ended
