"""What strangers read first: short sentences, and links that lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAIN = (
    "README.md", "CONTRIBUTING.md", "docs/adding.md", "docs/architecture.md", "docs/comparison.md",
    "docs/from-onnx-runtime.md", "docs/machines.md", "docs/performance.md",
    "docs/quantised.md", "docs/ray.md", "docs/serving.md", "docs/README.md",
    "docs/running.md", "docs/threads.md", "docs/toolchain.md", "docs/troubleshooting.md",
    "docs/tutorial.md", "docs/using.md", "docs/your-own-backend.md", "examples/README.md",
)  # fmt: skip
MOST_WORDS = 25
FOLDERS = ("python", "csrc", "scripts", "tests", "docs", "examples")
FILES = {f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")}
PAGES = [
    page
    for folder, pattern in ((".", "*.md"), ("docs", "**/*.md"), ("examples", "**/*.md"))
    for page in sorted((ROOT / folder).glob(pattern))
]


def sentences(page: str) -> Iterator[str]:
    """The sentences of a Markdown page: no code, tables, headings or pictures; a code span is one word."""
    page = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"^(    .*|\|.*|#.*|!\[.*)$", "", page, flags=re.MULTILINE)
    page = re.sub(r"`[^`]*`", "code", page)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
    for block in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", page, flags=re.MULTILINE):
        for sentence in re.split(r"(?<=[.!?])[*)]*\s+", " ".join(block.split())):
            if sentence:
                yield sentence


def words(sentence: str) -> int:
    return len(re.findall(r"[^\s→·÷=+–-]\S*", sentence))


@pytest.mark.parametrize("page", PLAIN)
def test_sentences_are_short(page: str) -> None:
    long = [s for s in sentences((ROOT / page).read_text()) if words(s) > MOST_WORDS]
    assert not long, "\n".join(f"{words(s)} words: {s}" for s in long)


def test_long_sentences_are_found() -> None:
    page = f"# Title\n\n- Short, with `some code of many words`. {'word ' * 26}end.\n\n| {'cell ' * 30}|\n"
    assert [words(s) > MOST_WORDS for s in sentences(page)] == [False, True]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`([\w/]+/\w+\.(?:py|c|h|md))`", page.read_text())
    missing = [name for name in named if not any(file.endswith(f"/{name}") for file in FILES)]
    assert not missing
