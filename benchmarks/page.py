"""A page of many findings: its size, the time to write it, and when a browser paints it.

    python -m benchmarks.page --findings 10000 -o page.html

The findings are made up: each has a request of its own, 128 tokens of random words on both sides, and a score list.
The paint is that of headless Chromium (`first-contentful-paint` of the page's own performance entries).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit" / "report"))

from report_data import BASE, MTP, arm_case, finding_case, make_case, run_of

from parity.plan.checkpoint import shipped_checkpoint
from parity.records import Key
from parity.report.formats.html import html_report
from parity.store import CompletionRow, RequestRow
from parity.view import FindingView, RunView

SECONDS = 4.0
PAINT = """<script>new PerformanceObserver(function (list) { list.getEntries().forEach(function (one) {
document.title = one.name + " " + one.startTime; }); }).observe({type: "paint", buffered: true});</script>"""


def finding(at: int, rng: np.random.Generator) -> FindingView:
    name = f"request-{at % 2000}"
    tokens = rng.integers(300, 2000, 128)
    place = int(rng.integers(5, 110))
    other = tokens.copy()
    other[place : place + 6] = rng.integers(300, 2000, 6)
    key = Key(name, at // 2000, 0)
    listed = [[int(tokens[place]), -0.2], [int(other[place]), -7.0], [310, -8.0], [311, -8.5], [312, -9.0]]

    def row(arm: str, ids: np.ndarray) -> CompletionRow:
        return CompletionRow(arm, *key, len(ids), "length", None, "corrupt", place, None, ids)

    return finding_case(
        request=name, id=at, key=key, position=place, length=6, gap=6.8, note="",
        evidence={"why": "6 of 6 tokens are not supported by the reference", "gap": 6.8, "tolerance": 0.25,
                  "logprobs": {"reference": listed}},
        asked=RequestRow(at, name, f"Question {at}: what comes next?", np.arange(300, 312)),
        baseline=row(BASE, tokens), candidate=row(MTP, other),
    )  # fmt: skip


def case(count: int) -> RunView:
    rng = np.random.default_rng(0)
    findings = tuple(finding(at, rng) for at in range(count))
    run = run_of(model_path=shipped_checkpoint("tiny-qwen3-next-mtp"))
    return make_case(
        run=run, findings=findings, total_findings=count, chosen=findings[0], arms=(arm_case(BASE), arm_case(MTP))
    )


class Slow(BaseHTTPRequestHandler):
    """A picture that takes its time, so that the page's load event, at which the browser is asked, comes after."""

    def do_GET(self) -> None:
        threading.Event().wait(SECONDS)
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def painted(page: Path) -> str:
    """First contentful paint in ms, as the browser says it; the page gets one script and one picture more for that."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return "no browser"
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    picture = f'<img hidden src="http://127.0.0.1:{server.server_port}/">'
    with tempfile.TemporaryDirectory() as folder:
        text = page.read_text(encoding="utf-8")
        copy = Path(folder) / "page.html"
        watched = re.sub(r"<meta http-equiv=[^>]*>", PAINT, text, count=1).replace("<main>", f"<main>{picture}", 1)
        copy.write_text(watched, encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += [f"--user-data-dir={folder}/profile", "--dump-dom", copy.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    server.shutdown()
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    count = re.search(r'id="count">(.*?)<', done.stdout)
    elements = len(re.findall(r"<[a-z]", done.stdout))
    return f"{title and title[1]} ms; after {SECONDS} s the filter says {count and count[1]}; {elements} elements drawn"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--findings", type=int, default=10_000)
    parser.add_argument("-o", "--output", type=Path, default=Path("page.html"))
    given = parser.parse_args()
    view = case(given.findings)
    began = time.perf_counter()
    text = html_report(view)
    seconds = time.perf_counter() - began
    given.output.write_text(text, encoding="utf-8")
    print(f"{given.findings} findings: {given.output.stat().st_size / 1e6:.2f} MB, written in {seconds:.1f} s")
    print(painted(given.output))


if __name__ == "__main__":
    main()
