"""The code of the pages in ``docs/seeds``, as a reader who copies it runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pages import DOCS, blocks, run_blocks

PAGES = sorted((DOCS / "seeds").glob("[0-9]*.md"))

SHOWN = {
    "1-two-adds": r"nn\.conv2d.*nn\.relu",
    "2-external-batch-norm": r"nn\.conv2d.*nn\.batch_norm.*nn\.relu.*nn\.conv2d.*\badd\(.*nn\.relu",
    "3-passes-beside": r'conv2d[^\n]*channels=12.*Compiler="convoy"[^@]*Composite="convoy.conv2d_relu"',
    "4-layer-norm": r"nn\.dense.*rsqrt.*nn\.relu",
    "5-one-kernel": r"conv2d.*relu",
    "6-one-op": r"nn\.global_avg_pool2d.*nn\.conv2d.*sigmoid.*multiply",
    "7-byoc-networks": r"^1 1\.0$",
}
"""What each page's program prints: what the page says it does."""


def test_every_page_is_here() -> None:
    assert [page.stem for page in PAGES] == list(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    # a process of its own: pages register passes' hooks and code generators
    (printed,) = run_blocks(blocks(page, language="python"), tmp_path)
    assert re.search(SHOWN[page.stem], printed.strip(), re.DOTALL), printed
