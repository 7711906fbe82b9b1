"""All regions of a model as one C unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from convoy.backend import RegionCode
from convoy.options import Options
from convoy.toolchain import compiler
from joining import join_units


@contextmanager
def relax_regions_joined() -> Iterator[None]:
    """Modern TVM's door compiles all regions of a module as one unit."""
    from convoy.relax import codegen

    units_of = codegen._units

    def units(regions: Sequence[RegionCode], options: Options) -> dict[str, str]:
        given = units_of(sorted(regions, key=lambda code: code.symbol), options)
        kernels = compiler.kernel_sources(given.values())
        shared = {*kernels, *compiler.runtime_sources(*compiler.ENTRY_UNITS), "settings.c"}
        own = [source for name, source in given.items() if name not in shared]
        rest = {name: source for name, source in given.items() if name in shared}
        return {"regions.c": join_units(own), **rest} if own else rest

    with patch.object(codegen, "_units", units):
        yield
