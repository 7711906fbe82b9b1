"""Comments of the C sources say why, not how fast: figures go out of date there, and have ``docs/lab/``."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|(/\*.*?\*/|//[^\n]*)', re.DOTALL)
MEASURED = re.compile(
    r"\b20\d\d-\d\d|\d %(?! [a-z]\b)|\b(?:Zen \d|Cascade Lake|Skylake|\w+ Rapids)|\d G(?:B/s|FLOP|Hz)"
)


def comments(source: str) -> Iterator[str]:
    """The comments of a C source; what a string holds is none."""
    return (found[1] for found in COMMENT.finditer(source) if found[1])


def measurements(source: str) -> list[str]:
    """What stands in the comments of a C source and was measured: dates, percentages, machines, rates."""
    return [found[0] for comment in comments(source) for found in MEASURED.finditer(comment)]


@pytest.mark.parametrize(
    "path",
    sorted(path for ending in ("*.c", "*.h") for path in CSRC.rglob(ending)),
    ids=lambda path: str(path.relative_to(CSRC)),
)
def test_comments_hold_no_measurements(path: Path) -> None:
    assert not measurements(path.read_text()), "say why in a sentence; the figures go to docs/lab/"


@pytest.mark.parametrize(
    "source",
    [
        "/* So it is faster (2026-11-21). */",
        "int a; // since 2026-11",
        "/* Saves time:\n * 5 % of it. */",
        'puts("x"); /* Only on a Zen 5. */',
        "/* 12.2 GB/s */",
    ],
)
def test_measurements_are_found(source: str) -> None:
    assert measurements(source)


@pytest.mark.parametrize(
    "source",
    [
        "/* Source: Lavin and Gray, 2015; Barabasz et al., 2020. */",
        "/* Lane l is v[4 % n]; weights of 4 KB. */",
        'puts("2026-11-21: 5 %, /* Zen 5 */");',
        "const int date = 2026-11-21;",
    ],
)
def test_other_figures_are_not(source: str) -> None:
    assert measurements(source) == []
