"""The report and the live page in a real browser: what is drawn, in both themes, by keyboard, and who is asked.

Skipped where there is no Chromium (tools/setup.sh: purpose `web`) or no playwright (`pip install 'incast[web]'`).
INCAST_SCREENSHOTS=DIR keeps what the browser showed.
"""

import io
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from incast.engine.program import ENGINE_VARIABLE
from incast.figures.style import DARK, LIGHT, Theme
from PIL import Image

from tests.conftest import DEADLINE_S, Incast, require_engine, wait_for_line

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'incast[web]'")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this host (tools/setup.sh, purpose web)")

THEMES = {"light": LIGHT, "dark": DARK}
SMALL = ("--transport", "inproc", "--nodes", "3", "--warm-up", "50ms", "--set", "source.prefill_size=256KiB")
WIDTHS = (480, 1280)  # of a telephone and of a desk
_FEW_PIXELS = 150  # of a line across a plot at least


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        # Chromium's own sandbox does not work as root, which containers are.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


class Watched:
    """A page and everything that it complained about or asked for."""

    def __init__(self, browser: Any, theme: str) -> None:
        self.context = browser.new_context(color_scheme=theme, viewport={"width": 1100, "height": 1400})
        self.page = self.context.new_page()
        self.page.set_default_timeout(DEADLINE_S * 1000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def picture(self, element: Any, name: str) -> Image.Image:
        """What an element looks like."""
        png = element.screenshot()
        if folder := os.environ.get("INCAST_SCREENSHOTS"):
            (Path(folder) / f"{name}.png").write_bytes(png)
        return Image.open(io.BytesIO(png)).convert("RGB")

    def wait_until(self, condition: str) -> None:
        """Polls from outside: the page's own policy allows no script but its own."""
        until = time.monotonic() + DEADLINE_S
        while not self.page.evaluate(condition):
            assert time.monotonic() < until, f"never: {condition}; {self.complaints}"
            self.page.wait_for_timeout(50)

    def check(self, origin: str) -> None:
        """Nothing was wrong, and nobody else was asked for anything."""
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith((origin, "data:"))] == []


@pytest.fixture(params=list(THEMES))
def watched(browser: Any, request: pytest.FixtureRequest) -> Iterator[tuple[Watched, str]]:
    page = Watched(browser, request.param)
    yield page, request.param
    page.context.close()


def pixels(picture: Image.Image, colour: str) -> int:
    """How many are of that colour, give or take what smoothing of edges leaves of it."""
    wanted = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    data = picture.tobytes()
    near = (all(abs(data[at + k] - wanted[k]) <= 12 for k in range(3)) for at in range(0, len(data), 3))
    return sum(near)


def check_lines(picture: Image.Image, theme: Theme, lines: int) -> None:
    """So many lines of the series' colours on the theme's background, part of which the measured window shades."""
    assert pixels(picture, theme.background) > picture.width * picture.height / 4
    assert [colour for colour in theme.series[:lines] if pixels(picture, colour) < _FEW_PIXELS] == []


def check_widths(seen: Watched, name: str) -> None:
    """Nothing sticks out of the page, and no word is too small to read."""
    for width in WIDTHS:
        seen.page.set_viewport_size({"width": width, "height": 1400})
        seen.picture(seen.page.locator("body"), f"{name}-{width}")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = "[...document.querySelectorAll('p, td, th')].map((one) => parseFloat(getComputedStyle(one).fontSize))"
        assert min(seen.page.evaluate(sizes), default=16) >= 11


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    incast = Incast(folder, {ENGINE_VARIABLE: str(require_engine())})
    for arguments in (
        ("run", *SMALL, "--duration", "400ms", "--set", "run.sample_interval=20ms", "--output", "built"),
        ("net", *SMALL[:4], "--duration", "100ms", "--set", "net.working_set=256KiB", "--output", "raw"),
        ("report", "built", "raw"),
    ):
        done = incast(*arguments)
        assert done.returncode == 0, done.stderr
    return folder / "report" / "index.html"


def test_report(report: Path, watched: tuple[Watched, str]) -> None:
    seen, theme = watched
    page = seen.page
    page.goto(report.as_uri())
    seen.picture(page.locator("body"), f"report-{theme}")
    over_time = page.locator("figure", has_text="Throughput over time per node: built").locator("svg")
    check_lines(seen.picture(over_time, f"report-over-time-{theme}"), THEMES[theme], 3)
    matrix = seen.picture(page.locator("figure", has_text="Matrix per pair").locator("svg"), f"report-matrix-{theme}")
    assert len(matrix.getcolors(matrix.width * matrix.height) or ()) > 50  # the colour scale, if nothing else
    # By keyboard alone: the first link of the contents, then the numbers of a figure.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "A"
    page.keyboard.press("Enter")
    assert "#" in page.url
    for _ in range(30):
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    check_widths(seen, f"report-{theme}")
    seen.check(report.parent.as_uri())


@pytest.fixture
def live_run(real_incast: Incast) -> Iterator[tuple[subprocess.Popen[str], str]]:
    run = subprocess.Popen(
        real_incast.command(
            "run", "--web", *SMALL, "--duration", "1h", "--set", "run.sample_interval=50ms", "--output", "live"
        ),
        cwd=real_incast.folder,
        env=real_incast.full_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url = re.search(r"http://\S+/", wait_for_line("live page: http://", run))
        assert url is not None
        yield run, url[0]
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=DEADLINE_S)


def test_live_page(live_run: tuple[subprocess.Popen[str], str], watched: tuple[Watched, str]) -> None:
    run, url = live_run
    seen, theme = watched
    page = seen.page
    page.goto(url)
    long_lines = "[...document.querySelectorAll('#throughput polyline')].filter((one) => one.points.length > 12).length"
    seen.wait_until(f"{long_lines} === 3")
    assert page.locator("#domain").inner_text() == "measured"
    assert page.locator("#nodes tr").count() == 3
    # Tab to the button, hold the plots, and read the first of them with the arrow keys.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("#pause").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    first = page.locator("#throughput .reading").inner_text()
    page.keyboard.press("ArrowRight")
    second = page.locator("#throughput .reading").inner_text()
    assert first.startswith("at ")
    assert second.startswith("at ")
    assert first != second
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    plots = {
        name: seen.picture(page.locator(f"#{name}"), f"live-{name}-{theme}") for name in ("throughput", "latencies")
    }
    seen.picture(page.locator("body"), f"live-{theme}")
    check_lines(plots["throughput"], THEMES[theme], 3)
    check_lines(plots["latencies"], THEMES[theme], 1)
    page.keyboard.press("Escape")
    assert page.locator("#throughput .reading").inner_text() == ""
    check_widths(seen, f"live-{theme}")
    # Plots are drawn again, so that their words do not shrink with them.
    page.set_viewport_size({"width": WIDTHS[0], "height": 1400})
    heights = "[...document.querySelectorAll('#throughput svg text')].map((one) => one.getBoundingClientRect().height)"
    seen.wait_until(f"Math.min(...{heights}) >= 10")
    seen.picture(page.locator("body"), f"live-{theme}-{WIDTHS[0]}-again")
    run.send_signal(signal.SIGINT)
    seen.wait_until("document.getElementById('phase').textContent.startsWith('ended: interrupted')")
    seen.check(url)
