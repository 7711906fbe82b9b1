"""Pages in headless Chromium, where it and playwright are: elements, clicks, search, keys, no errors."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import convoy
from command import tiny_model
from convoy.report.decision import Report
from convoy.report.pages.content import explain_content
from convoy.report.pages.page import make_page

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright (170 MB)"
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH"),
]


def long_content(count: int) -> dict[str, Any]:
    """A network of so many kernels, each of which reads the one before and one further up."""
    nodes = [
        {
            "id": f"n{i}", "kind": "step", "label": f"conv2d layer{i}", "kernel": f"kernel {i % 5}",
            "region": "r", "step": i, "ops": [f"conv2d layer{i}"], "text": "conv2d", "tiling": "",
            "shape": "1×8", "dtype": "float32", "estimate": 1e-5, "measured": 2e-5, "balance": 0.9,
            "flops": 1000 + i, "bytes": 100, "products": 1.0, "share": 0.5, "decisions": [],
            "source": "static void step(void) {}\n",
        }
        for i in range(count)
    ]  # fmt: skip
    edges = [(f"n{j}", f"n{i}") for i in range(1, count) for j in {i - 1, max(i - 4, 0)}]
    roof = {"flops": 1e11, "cache": 1e11, "memory": 1e10}
    rest: dict[str, Any] = {"summary": [], "left": [], "besides": [], "regions": [], "engines": []}
    return {"title": "long", "nodes": nodes, "edges": edges, "roof": roof, **rest}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(browser: Any, path: Path, width: int = 1280) -> tuple[Any, list[str]]:
    page, errors = browser.new_page(viewport={"width": width, "height": 900}), []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: errors.append(request.url) if request.url != path.as_uri() else None)
    page.on("dialog", lambda dialog: errors.append("a dialog"))
    page.goto(path.as_uri())
    return page, errors


@pytest.mark.parametrize("width", [1280, 400])
def test_a_page_shows_finds_and_opens_nodes(browser: Any, tmp_path: Path, width: int) -> None:
    model, report = tiny_model(extra="Hardmax"), Report()
    model.graph.node[0].name = "</script><script>alert(1)</script>"
    convoy.compile(model, report=report)
    path = tmp_path / "page.html"
    path.write_text(make_page(explain_content(report, "tiny.onnx")))
    page, errors = open_page(browser, path, width)
    assert page.locator("#left .reason").count() >= 2
    assert page.locator("#canvas .node").count() >= 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("/")
    page.keyboard.type("alert(1)")
    page.keyboard.press("Enter")
    assert "of" in page.locator("#found").inner_text()
    assert "conv2d" in page.locator("#panel h3").inner_text()
    node, panel = (page.locator(place).bounding_box() for place in ("#canvas .node.chosen", "#panel"))
    assert node["x"] + node["width"] <= panel["x"] or node["y"] + node["height"] <= panel["y"]
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    page.locator("#fit").click()
    page.locator("#canvas .node", has_text="hardmax").first.click()
    assert "Convoy has no kernel" in page.locator("#panel").inner_text()
    page.locator("#bars .row", has_text="relu0").last.click()
    assert "static void step_" in page.locator("#panel pre").inner_text()
    colours = set()
    for by in ("kernel", "region", "time", "share"):
        page.locator("#colour").select_option(by)
        fills = "[...document.querySelectorAll('#canvas rect')].map(r => r.style.fill).join()"
        colours.add(page.evaluate(fills))
    assert len(colours) == 4
    assert errors == []


def test_a_step_s_times_stand_in_one_line_of_a_narrow_page(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "narrow.html"
    path.write_text(make_page(long_content(3)))
    page, _ = open_page(browser, path, 400)
    heights = "[...document.querySelectorAll('#bars .number')].map(n => n.getClientRects()[0].height)"
    assert max(page.evaluate(heights)) < 24


def test_five_hundred_nodes_are_drawn_and_moved_without_lag(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "long.html"
    path.write_text(make_page(long_content(500)))
    begin = time.perf_counter()
    page, errors = open_page(browser, path)
    assert page.locator("#canvas .node").count() == 500
    assert time.perf_counter() - begin < 20  # of a busy machine; 2 s of a quiet one
    frames = page.evaluate(
        """async () => {
          const canvas = document.getElementById("canvas"), begin = performance.now();
          for (let i = 0; i < 30; i++) {
            const turn = { deltaY: i % 2 ? 40 : -40, clientX: 300, clientY: 300 };
            canvas.dispatchEvent(new WheelEvent("wheel", turn));
            await new Promise(requestAnimationFrame);
          }
          return (performance.now() - begin) / 30;
        }"""
    )
    assert frames < 200
    assert errors == []
