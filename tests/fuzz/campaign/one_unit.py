"""All regions of a model as one C unit.

A region's unit takes gcc a third of a second, most of it for what regions share: the headers and their
kernels.  Twenty-four regions in one unit take a fifth of what they take apart (measured 2026-11-23).
What is static in a region gets a name of its own; tiles are declared once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from convoy.options import Options
from convoy.target import Target
from convoy.toolchain import compiler, units

_STATIC = re.compile(
    r"^(?:__attribute__\(\(constructor\)\) )?(?:static [^;={]*?|typedef struct )\b(\w+)(?=\(|\[| =| \{)",
    re.M,
)
_TILE = re.compile(r"^CV_(?!CONV2D_|TVM_)[A-Z0-9_]+\((\w+),", re.M)
_ONCE = ("CV_CONV2D_", "_Static_assert")


def join_units(sources: Sequence[str]) -> str:
    """One C unit that defines what ``sources`` define."""
    includes: dict[str, None] = {}
    seen: set[str] = set()
    bodies = []
    for number, source in enumerate(sources):
        lines = []
        for line in source.splitlines():
            if line.startswith("#include"):
                includes[line] = None
            elif not line.startswith(_ONCE) or line not in seen:
                lines.append(line)
                seen.add(line)
        body = "\n".join(lines)
        bodies.append(_rename(body, {*_STATIC.findall(body), *_TILE.findall(body)}, f"_r{number}"))
    return "\n".join([*includes, *bodies])


def _rename(text: str, names: set[str], suffix: str) -> str:
    """``text`` with ``suffix`` after each of ``names`` that is no member and no string."""
    if not names:
        return text
    found = re.compile(rf'(?<![\w."])(?:{"|".join(sorted(names))})\b')
    return found.sub(lambda match: match[0] + suffix, text)


@contextmanager
def relax_regions_joined() -> Iterator[None]:
    """Modern TVM's door compiles all regions of a module as one unit."""

    def compile_units(
        given: Mapping[str, str],
        weights: Mapping[str, memoryview],
        target: Target,
        options: Options,
        progress: object,
    ) -> list[Path]:
        shared = {*compiler.runtime_sources(*compiler.ENTRY_UNITS), "settings.c"}
        regions = [source for name, source in given.items() if name not in shared]
        rest = {name: source for name, source in given.items() if name in shared}
        joined = {"regions.c": join_units(regions), **rest}
        return units.compile_units(joined, weights, target, options, progress)  # type: ignore[arg-type]

    with patch("convoy.relax.codegen.compile_units", compile_units):
        yield
