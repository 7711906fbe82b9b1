"""The C by which classic TVM calls a region, and the runtime its regions share.

TVM compiles each external function by itself, so regions are objects of their own; in a library all of
them find one runtime.  Its functions are weak, because the runtime comes with every region, and their
names carry a hash of its source: two different runtimes in one process never meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from convoy.deploy.abi import THREAD_FUNCTIONS, emit_settings, emit_table
from convoy.graph.ops import Tensor
from convoy.text import c_comment, c_name, c_string
from convoy.toolchain.compiler import CLASSIC_ENTRY_UNITS, runtime_sources

RUNTIME_FUNCTIONS = (
    "convoy_launch",
    "convoy_barrier",
    "convoy_arrive",
    "convoy_release",
    "convoy_num_threads",
    "convoy_set_num_threads",
    "convoy_place_weights",
    "convoy_has_amx",
    "convoy_call_classic",
)
"""What a region, its entry or a program calls of the runtime: ``convoy/runtime.h``, ``classic_entry.h``."""


def entry_name(symbol: str) -> str:
    """The C function that TVM's code calls for the region ``symbol``."""
    return c_name(f"{symbol}_entry")


def function_name(name: str, symbol: str) -> str:
    """What messages call the region ``symbol`` that TVM knows by ``name``: the entry's first argument."""
    return f"{name} ({symbol})"


def emit_entry(symbol: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], batch: int | None) -> str:
    """C of the entry of the region ``symbol``, in TVM's packed calling convention.

    Parameters
    ----------
    symbol, inputs, outputs, batch
        As in ``convoy.deploy.abi.emit_entry``.

    Returns
    -------
    str
        A C unit that calls the shared runtime; its function takes ``function_name``, the inputs, the
        outputs.
    """
    return f"""\
/* How TVM calls {c_comment(symbol)}: {len(inputs):d} inputs, then {len(outputs):d} outputs. */
#include "convoy/classic_entry.h"

{emit_table(symbol, inputs, outputs, batch)}
CV_TVM_EXPORT int {entry_name(symbol)}({_PARAMETERS}) {{
  (void)kinds, (void)result, (void)self; /* TVM has checked the kinds */
  *result_kind = CV_CLASSIC_NULL;
  return convoy_call_classic(&entry, args, count);
}}
"""


def emit_packed_call(name: str, symbol: str, arguments: int) -> str:
    """C of ``name``, which calls the entry of the region ``symbol`` with its tensors."""
    values = "".join(f", args[{i}]" for i in range(arguments))
    return f"""\
#include "convoy/classic_entry.h"

int {entry_name(symbol)}({_PARAMETERS});

CV_TVM_EXPORT int {c_name(name)}({_PARAMETERS}) {{
  const cv_classic_value values[] = {{{{.handle = {c_string(function_name(name, symbol))}}}{values}}};
  return {entry_name(symbol)}(values, kinds, count + 1, result, result_kind, self);
}}
"""


_PARAMETERS = (
    "const cv_classic_value *args, const int *kinds, int count, cv_classic_value *result, "
    "int *result_kind, void *self"
)
"""The parameters of every packed function."""


class SharedRuntime:
    """The runtime of all regions that are compiled with one number of threads."""

    def __init__(self, threads: int) -> None:
        sources = {"settings.c": emit_settings(threads), **runtime_sources(*CLASSIC_ENTRY_UNITS)}
        digest = blake2b("\0".join(sources.values()).encode(), digest_size=8)
        self.name = digest.hexdigest()
        weak = "".join(f"#pragma weak {self.name_of(function)}\n" for function in RUNTIME_FUNCTIONS)
        self.units: Mapping[str, str] = {
            unit: self.named(weak + source) for unit, source in sources.items()
        }
        """Its C units by file name."""

    def name_of(self, function: str) -> str:
        """The name of one of ``RUNTIME_FUNCTIONS``."""
        return f"{function}_{self.name}"

    @property
    def exports(self) -> list[str]:
        """What others may call."""
        return [*map(self.name_of, RUNTIME_FUNCTIONS), *THREAD_FUNCTIONS]

    def named(self, source: str) -> str:
        """A C unit that calls this runtime."""
        renamed = "".join(f"#define {name} {self.name_of(name)}\n" for name in RUNTIME_FUNCTIONS)
        return renamed + source
