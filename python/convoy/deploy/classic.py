"""The C by which classic TVM calls a region, and the runtime its regions share.

TVM compiles each external function by itself, so regions are objects of their own; in a library all of
them find one runtime.  Its functions are weak, because the runtime comes with every region, and their
names carry a hash of its source: two different runtimes in one process never meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from convoy.deploy.abi import THREAD_FUNCTIONS, emit_settings
from convoy.graph.ops import Tensor
from convoy.target import Target
from convoy.toolchain.compiler import CLASSIC_ENTRY_UNIT, runtime_sources

RUNTIME_FUNCTIONS = (
    "convoy_launch",
    "convoy_barrier",
    "convoy_num_threads",
    "convoy_set_num_threads",
    "convoy_place_weights",
)
"""What a region, or a program, calls of the runtime: ``convoy/runtime.h``."""

PROBLEMS: Mapping[int, str] = {
    1: "scratch memory: expected enough memory for one image, got none; free memory or raise the limit",
    -1: "axis 0: expected as many images in all arguments, got different numbers; give equal numbers, or a "
    "fixed shape when compiling",
}
"""What each status of an entry but 0 means: ``convoy/region.h``, and ``convoy/classic_abi.h``."""


def entry_name(symbol: str) -> str:
    """The C function that TVM's code calls for the region ``symbol``."""
    return f"{symbol}_entry"


def emit_entry(symbol: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], batch: int | None) -> str:
    """C of the entry of the region ``symbol``: one DLTensor an argument, the outputs last.

    It returns the region's status (``convoy/region.h``), or ``CV_CLASSIC_BATCHES``.

    Parameters
    ----------
    batch : images of a call; None: any number, the same in all arguments
    """
    names = [f"a{i}" for i in range(len(inputs) + len(outputs))]
    arguments = ", ".join(f"const cv_dltensor *{name}" for name in names)
    elements = [f"convoy_elements({name})" for name in names]
    read, written = ", ".join(elements[: len(inputs)]), ", ".join(elements[len(inputs) :])
    images = f"  const int64_t images = {'a0->shape[0]' if batch is None else batch};\n"
    if batch is None:
        differing = " || ".join(f"{name}->shape[0] != images" for name in names[1:])
        images += f"  if ({differing}) return CV_CLASSIC_BATCHES;\n  if (images == 0) return CONVOY_OK;\n"
    return f"""\
/* How TVM calls {symbol}: {len(inputs)} inputs, then {len(outputs)} outputs. */
#include "convoy/classic_abi.h"
#include "convoy/region.h"

int {symbol}(const float *const *inputs, float *const *outputs, int64_t images);

CV_TVM_EXPORT int {entry_name(symbol)}({arguments}) {{
{images}  const float *const inputs[] = {{{read}}};
  float *const outputs[] = {{{written}}};
  return {symbol}(inputs, outputs, images);
}}
"""


def emit_packed_call(name: str, symbol: str, arguments: int) -> str:
    """C of ``name``: the region ``symbol`` in TVM's packed calling convention, its problems TVM errors."""
    handles = ", ".join(f"args[{i}].handle" for i in range(arguments))
    problems = "".join(
        f'  if (status == {number}) TVMAPISetLastError("{name}: {problem}");\n'
        for number, problem in PROBLEMS.items()
    )
    return f"""\
#include "convoy/classic_abi.h"

int {entry_name(symbol)}({", ".join(["const cv_dltensor *"] * arguments)});

CV_TVM_EXPORT int {name}(const cv_classic_value *args, const int *kinds, int count,
                         cv_classic_value *result, int *result_kind, void *self) {{
  (void)kinds, (void)count, (void)result, (void)self;
  *result_kind = CV_CLASSIC_NULL;
  const int status = {entry_name(symbol)}({handles});
{problems}  return status == 0 ? 0 : -1;
}}
"""


class SharedRuntime:
    """The runtime of all regions that are compiled for one machine with one number of threads."""

    def __init__(self, target: Target, threads: int) -> None:
        sources = {"settings.c": emit_settings(threads), **runtime_sources(CLASSIC_ENTRY_UNIT)}
        digest = blake2b("\0".join([target.isa, *sources.values()]).encode(), digest_size=8)
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
