"""Regions of many cases of a test compiled as one C unit: a third of GCC's time, and of the linker's.

``@pytest.mark.together(of=asked)`` says what a test compiles: ``asked`` takes the test's parameters and
returns its regions.  The fixture ``regions`` has them loaded, in this order.  They are compiled with those
of the marked cases next to it in its file, ``CASES`` at a time.  Each has its own graph, code, weights and
answers, and each case its own failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pytest

from convoy.backend import LoadedRegion, RegionCode, generate, load
from convoy.errors import UnitError
from convoy.graph import Graph
from convoy.options import Options
from convoy.target import Target
from convoy.toolchain.compiler import compile_objects, kernel_sources, link_shared, runtime_sources
from convoy.toolchain.loader import load_region
from convoy.toolchain.weights import embed_weights
from joining import join_units

CASES = 36
"""Compiled at a time: tests of one worker, mostly, as it has a stretch of them."""


@dataclass(frozen=True)
class Asked:
    """A region to compile; parameters as those of ``backend.load``."""

    graph: Graph
    target: Target
    options: Options = field(default_factory=Options)
    under: Callable[[], AbstractContextManager[object]] = nullcontext
    """What else is changed while it is planned."""


Found = LoadedRegion | Exception
"""A region, or why there is none."""
_found: dict[str, list[Found]] = {}
"""By the names of tests: the regions of those compiled last."""


def load_together(asked: Sequence[Asked]) -> list[Found]:
    """As ``backend.load`` of each, in fewer C units: one for a target's flags and what its units define."""
    found: list[Found | None] = [None] * len(asked)
    units: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[int, RegionCode]] = {}
    targets: dict[tuple[str, ...], Target] = {}
    for i, one in enumerate(asked):
        target = one.target if one.target.bfloat16 else one.target.for_precision(one.options.precision)
        try:
            with one.under():
                code = generate(one.graph, f"region_{i}", target, one.options)
        except Exception as error:  # its own test's
            found[i] = error
            continue
        lines = "\n".join(code.sources).splitlines()
        defines = tuple(line for line in lines if line.startswith("#define"))
        units.setdefault((target.flags, defines), {})[i] = code
        targets[target.flags] = target  # of a target a unit has the flags alone
    for (flags, _), codes in units.items():
        for i, region in _load_unit(codes, asked, targets[flags]).items():
            found[i] = region
    return [region for region in found if region is not None]


def _load_unit(codes: dict[int, RegionCode], asked: Sequence[Asked], target: Target) -> dict[int, Found]:
    joined = join_units([source for code in codes.values() for source in code.sources])
    sources = [joined, *kernel_sources([joined]).values(), *runtime_sources().values()]
    try:
        objects = compile_objects(sources, target)
    except UnitError:  # whose it is shows apart
        return {i: _load(asked[i]) for i in codes}
    objects += [embed_weights(code.symbol, code.weights, target) for code in codes.values() if code.weights]
    library = link_shared(objects)
    return {i: LoadedRegion(code, load_region(library, code)) for i, code in codes.items()}


def _load(asked: Asked) -> Found:
    try:
        with asked.under():
            return load(asked.graph, asked.target, asked.options)
    except Exception as error:
        return error


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "together(of): the regions of a test's cases are compiled together (tests/together.py)"
    )


@pytest.fixture
def regions(request: pytest.FixtureRequest) -> list[LoadedRegion]:
    """Those that the test's mark asks for."""
    item = request.node
    assert _mark(item) is not None, f"{item.nodeid} wants regions, and has no mark that says which"
    if item.nodeid not in _found:
        alike = [i for i in request.session.items if i.path == item.path and _mark(i) is not None]
        first = alike.index(item) // CASES * CASES
        _compile_cases(alike[first : first + CASES])
    found = _found[item.nodeid]
    for region in found:
        if isinstance(region, Exception):
            raise region
    return [region for region in found if isinstance(region, LoadedRegion)]


def _mark(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("together")


def _compile_cases(items: Sequence[pytest.Item]) -> None:
    _found.clear()
    asked: dict[str, list[Asked]] = {}
    for item in items:
        mark = _mark(item)
        assert mark is not None
        make: Callable[..., list[Asked]] = mark.kwargs["of"]
        try:
            asked[item.nodeid] = make(**(item.callspec.params if hasattr(item, "callspec") else {}))
        except Exception as error:  # its own test's
            _found[item.nodeid] = [error]
    found = iter(load_together([one for some in asked.values() for one in some]))
    for name, some in asked.items():
        _found[name] = [next(found) for _ in some]
