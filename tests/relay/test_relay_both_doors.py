"""The same bytes through both doors: a quantised network, as ``tests/relax/test_both_doors.py``."""

from __future__ import annotations

from relay_modules import run
from tvm import relay

import convoy
from convoy.options import Options
from convoy.report.decision import Report
from two_doors import ANSWER, CPU, digest, make_image, make_model


def test_a_quantised_network_has_the_bytes_that_relax_gives() -> None:
    mod, params = relay.frontend.from_onnx(make_model(), freeze_params=True)
    report = Report()
    with convoy.relay.using(Options(threads=2), report):
        library = relay.build(mod, target=f"llvm -keys=convoy,cpu -mcpu={CPU}", params=params)
    (found,) = run(library, make_image())
    assert report.flops_share == 1
    assert digest(found) == ANSWER
