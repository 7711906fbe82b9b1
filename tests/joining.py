"""Several regions as one C unit.

A region's unit takes gcc a third of a second, most of it for what regions share: the headers and their
kernels.  Twenty-four regions in one unit take a fifth of what they take apart (measured 2026-11-23).
What is static in a region gets a name of its own; tiles are declared once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_STATIC = re.compile(
    r"^(?:__attribute__\(\(constructor\)\) )?(?:static [^;={]*?|typedef struct )\b(\w+)(?=\(|\[| =| \{)",
    re.M,
)
_TILE = re.compile(r"^CV_(?!CONV2D_|WINOGRAD(?!_ROWS)|TVM_)[A-Z0-9_]+\((\w+),", re.M)
_ONCE = re.compile("CV_CONV2D_|CV_WINOGRAD(?!_ROWS)|_Static_assert")


def join_units(sources: Sequence[str]) -> str:
    """One C unit that defines what ``sources`` define."""
    defines: dict[str, None] = {}
    includes: dict[str, None] = {}
    seen: set[str] = set()
    bodies = []
    for number, source in enumerate(sources):
        lines = []
        for line in source.splitlines():
            if line.startswith("#define"):  # what the headers look at
                defines[line] = None
            elif line.startswith("#include"):
                includes[line] = None
            elif not _ONCE.match(line) or line not in seen:
                lines.append(line)
                seen.add(line)
        body = "\n".join(lines)
        bodies.append(_rename(body, {*_STATIC.findall(body), *_TILE.findall(body)}, f"_r{number}"))
    return "\n".join([*defines, *includes, *bodies])


def _rename(text: str, names: set[str], suffix: str) -> str:
    """``text`` with ``suffix`` after each of ``names`` that is no member and no string."""
    if not names:
        return text
    found = re.compile(rf'(?<![\w."])(?:{"|".join(sorted(names))})\b')
    return found.sub(lambda match: match[0] + suffix, text)
