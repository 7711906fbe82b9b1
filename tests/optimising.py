"""How C is compiled where a test asks for something else than what kernels compute on this machine."""

from __future__ import annotations

from functools import cache

from convoy.toolchain.driver import find_compiler

_LEFT_OUT = (
    "--param", "max-combine-insns=2", "-fno-tree-ccp", "-fno-tree-bit-ccp", "-fno-tree-dominator-opts",
    "-fno-tree-pta", "-fno-guess-branch-probability",
)  # fmt: skip


@cache
def less() -> tuple[str, ...]:
    """Flags after which less is optimised: -O1, and of GCC no pass that takes longer than it saves others.

    Code is a fourteenth larger, and GCC takes three quarters as long as with -O1 alone.
    """
    return ("-O1", *(_LEFT_OUT if find_compiler().is_gcc else ()))
