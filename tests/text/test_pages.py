"""The pages and pictures of ``convoy bench`` show names of files without obeying them."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hostile import NAMES

from convoy.bench.bounds import Work
from convoy.bench.machine import Rates
from convoy.bench.measure import Measurement, Timing
from convoy.bench.picture import draw
from convoy.bench.study import Settings, Study
from convoy.bench.text import study_markdown

SOME = tuple(name[:60] for name in NAMES)


@pytest.fixture
def study() -> Study:
    """One whose models, machine and command are called all that."""
    timings = (
        Timing("convoy", 10.0, 5.0, 10.0, 11.0, 12.0, 100.0, 0.1, 1.0, 10, 0.0),
        Timing("ncnn", 20.0, 9.0, 20.0, 24.0, 25.0, 50.0, 0.1, 2.0, 10, 1.0),
    )
    measured = Measurement(
        timings, {"openvino": "\n".join(SOME)}, Work(10**9, 10**8, 10**7), Rates(2e11, 2e10)
    )
    return Study(
        date="2026-01-02 03:04", command=" ".join(SOME), cpu=" ".join(SOME), threads=2,
        settings=Settings(("convoy", "openvino", "ncnn")), versions={}, load=(0.0, 0.0),
        results=dict.fromkeys(SOME, measured), failures=dict.fromkeys(SOME, " ".join(SOME)),
    )  # fmt: skip


def test_markdown_has_its_own_lines_and_cells_only(study: Study) -> None:
    text = study_markdown(study)
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines)
    rows = [line.replace("\\|", "") for line in lines if line.startswith("| ")]
    assert len(rows) == 2 + len(study.results)
    assert len({row.count("|") for row in rows}) == 1
    assert len([line for line in lines if line.startswith("- ")]) == 7 + 3 * len(study.results)
    shown = [line for line in lines if not line.startswith("- command: `")]  # which is code, to its end
    assert len(shown) == len(lines) - 1
    assert not any("<script>" in line.replace("\\<", "") for line in shown)


def test_json_gives_them_back(study: Study, tmp_path: Path) -> None:
    study.write(tmp_path / "study.json")
    assert (tmp_path / "study.json").read_text().isascii()
    assert list(json.loads((tmp_path / "study.json").read_text())["results"]) == list(study.results)


def test_a_picture_is_xml_without_scripts(study: Study, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra 'bench', is not installed")
    draw(study, tmp_path / "study.svg")
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(tmp_path / "study.svg").iter()}
    assert "text" in tags
    assert not tags & {"script", "a", "foreignObject", "image"}
    assert "$x$" in (tmp_path / "study.svg").read_text()
