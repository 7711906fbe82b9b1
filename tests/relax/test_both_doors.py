"""The same bytes through both doors: a quantised network, as ``tests/relay/test_relay_both_doors.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import convoy
from convoy.bench.accuracy import reference_outputs
from convoy.report.decision import Report
from two_doors import ANSWER, CPU, digest, make_image, make_model


@pytest.mark.slow
def test_a_quantised_network_has_the_bytes_that_relay_gives(tmp_path: Path) -> None:
    report, image = Report(), make_image()
    library = tmp_path / "net.so"
    convoy.compile(make_model(), target=CPU, threads=2, report=report).export_library(str(library))
    (found,) = convoy.load(library).run([image])
    assert any("int8" in step for region in report.regions for step in region.steps)
    (want,) = reference_outputs(make_model(), {"x0": image})
    assert np.abs(found - want).max() <= 0.0201  # a unit of the output
    assert len(np.unique(found)) > 5
    assert digest(np.asarray(found)) == ANSWER
