"""Plain TVM, where only its answer is asked for."""

from __future__ import annotations

import tvm

UNOPTIMISED = tvm.target.Target({"kind": "llvm", "opt-level": 0})
"""LLVM takes two thirds of the time; the answer is the same."""
