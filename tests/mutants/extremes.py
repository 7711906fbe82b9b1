"""Values that readers of models may not expect."""

from __future__ import annotations

import math

INTEGERS = (
    0, 1, -1, 2, 3, 7, -2, 16, 255, 1 << 16, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 40, (1 << 62) + 1,
    (1 << 63) - 1, -(1 << 63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e30, -1e30, math.inf, -math.inf, math.nan)
NAMES = (
    "", " ", "x", "0", "n", "main", "a/b:c", "../../up", "*/", "//", "\\", "\\\n", "a\\\nb", "%s%n", "${x}",
    "$(id)", '"', "'", "<script>", "\x1b[2J", "\x07", "\r\n", "\t", "é", "名前", "\u202e", "int", "a" * 300,
    "*\\\n/ #error injected\n/*", "x y", "-o", "&amp;", "{}", "{{", "[0]", "_", "__", "convoy", "lv",
    "R.shape",
)  # fmt: skip
