"""What ``compile`` gives: TVM's own executable, with the report of how it came about."""

from __future__ import annotations

import tvm
from tvm import relax

from convoy.report.decision import Report


class Executable(relax.VMExecutable):  # type: ignore[misc]  # mypy knows nothing of TVM's classes
    """A compiled network, with ``export_library``, ``jit`` and all else that TVM's executable has.

    Parameters
    ----------
    module : tvm.runtime.Module
        What TVM built.
    report : Report
        What was decided on the way.
    """

    def __init__(self, module: tvm.runtime.Module, report: Report) -> None:
        super().__init__(module)
        self.report = report

    def __repr__(self) -> str:
        return f"<Executable: {self.report!r}>"
