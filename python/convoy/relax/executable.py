"""What ``compile`` gives: TVM's own executable, with the report of how it came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from convoy.deploy.export import check_place, explain_failure
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

    def export_library(self, file_name: str, **settings: Any) -> Any:
        """TVM's own, with what may go wrong said in one line.

        Raises
        ------
        ToolchainError
            If the library cannot be linked or written.
        """
        path = Path(file_name)
        check_place(path)
        with explain_failure(path):
            return super().export_library(file_name, **settings)

    def __repr__(self) -> str:
        return f"<Executable: {self.report!r}>"
