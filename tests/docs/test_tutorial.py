"""The tutorial works, each block in its order, as a newcomer runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pages import DOCS, ROOT, blocks, run_blocks

PAGE = DOCS / "tutorial.md"


@pytest.mark.slow
def test_the_tutorial_works_from_its_first_block_to_its_last(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    install = blocks(PAGE, "Install")
    chosen = [one for one in blocks(PAGE) if one not in install]
    printed = "\n".join(run_blocks(chosen, tmp_path))
    for said in (
        "93 ops offloaded in 1 region, 0 left to TVM",
        "data_0: float32 [1, 3, 224, 224]",
        " ok ",
        "1000 values",
        "[n, 1, 480, 640]",
    ):
        assert said in printed, f"{said!r} is not in:\n{printed}"
    scores = np.load(tmp_path / "scores.npy").ravel()
    assert f"class {scores.argmax()}" in printed
    np.testing.assert_allclose(np.fromfile(tmp_path / "ship/scores.raw", np.float32), scores, rtol=1e-5)


def test_a_block_is_found_by_its_section() -> None:
    assert len(blocks(PAGE)) > len(blocks(PAGE, language="python")) > 1
    (only,) = blocks(PAGE, "Look into a library")
    assert (only.language, only.code) == ("sh", "convoy inspect squeezenet.so\n")
    with pytest.raises(AssertionError, match=r"tutorial.md has no section Nothing"):
        blocks(PAGE, "Nothing")


def test_a_block_that_fails_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("## Do\n\n```sh\ntrue\n```\n\n```sh\nfalse; true\n```\n")
    with pytest.raises(AssertionError, match="false; true"):
        run_blocks(blocks(page), tmp_path)
