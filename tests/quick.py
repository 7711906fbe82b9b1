"""``--quick``: a selection of the tests for the loop of a developer, by three rules and no list.

- Of each test function the first case.
- None that is marked ``slow``: it takes more than ``SECONDS`` of a quiet core.
- Of each file the first ``FILE_TESTS``, unless files or folders are named.  Of those of ``tests/relay``
  always the first ``RELAY_TESTS``: classic TVM takes half a second for each.

The report ends with the tests that took longer, so that the mark is where it belongs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

SECONDS = 0.5
FILE_TESTS = 8
RELAY_TESTS = 3
_RELAY = Path(__file__).parent / "relay"

_seconds: Counter[str] = Counter()
"""What each test took, with what was made for it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="of each test function the first case, and none marked slow"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"slow: takes more than {SECONDS:g} s of a quiet core; scripts/test --quick leaves it out",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--quick"):
        return
    chosen: dict[str, pytest.Item] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            chosen.setdefault(item.nodeid.partition("[")[0], item)
    seen: Counter[Path] = Counter()
    most = len(items) if config.getoption("file_or_dir") else FILE_TESTS
    for name, item in list(chosen.items()):
        seen[item.path] += 1
        if seen[item.path] > (RELAY_TESTS if item.path.is_relative_to(_RELAY) else most):
            del chosen[name]
    kept = {item.nodeid for item in chosen.values()}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = chosen.values()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    late = [f"{seconds:.1f} s {name}" for name, seconds in _seconds.most_common() if seconds > SECONDS]
    if config.getoption("--quick") and late:
        terminalreporter.section(
            f"longer than {SECONDS:g} s; on a quiet machine these are to be marked slow"
        )
        terminalreporter.write_line("\n".join(late))
