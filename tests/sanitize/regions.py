"""Generated regions under a sanitizer: graphs become C, a table of them, data and expected answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convoy.backend import generate
from convoy.graph import Graph
from convoy.graph.reference import run
from convoy.options import Options
from convoy.target import Target
from convoy.toolchain.compiler import kernel_include_dirs, kernel_sources, runtime_sources
from convoy.toolchain.weights import embed_weights
from fuzz.graphs import random_inputs
from fuzz.ties import slack
from line import Line
from sanitize.build import compile_program, run_program

BOUND = 1e-4
"""The promise of every region, of its largest output."""
TYPES = ("float32", "uint8", "int8")
"""As the driver numbers them."""


def sanitize_regions(
    test: str, graphs: Sequence[Graph], folder: Path, sanitizer: str, target: Target, seed: int = 0
) -> Line:
    """Compile and run regions in one program; each is called by 1 to 3 threads and by 3 callers at once.

    One with sizes that are known at the call is called with some that the seed draws.
    """
    start = time.monotonic()
    folder.mkdir(parents=True)
    units, objects = [], []
    table: dict[str, list[int]] = {}
    with (folder / "data.bin").open("wb") as data:
        for i, graph in enumerate(graphs):
            symbol = f"region_{i}"
            code = generate(graph, symbol, target, Options(threads=2))
            for j, source in enumerate(code.sources):
                units.append(_write(folder / f"{symbol}_{j}.c", source))
            if code.weights:
                objects.append(embed_weights(symbol, code.weights, target, output=folder / f"{symbol}_w.o"))
            draw = np.random.default_rng(seed + i)
            told = {at.symbol: int(draw.integers(at.symbol.least, 40)) for at in graph.open_axes}
            graph = graph.bound(told)
            inputs = random_inputs(graph, seed + i, images=3)
            answers = run(graph, inputs)
            ties = slack(graph, inputs, answers)
            images = 1 if not inputs else len(inputs[0]) // graph.shape(graph.inputs[0])[0]
            values = [*inputs, *answers]
            types = [TYPES.index(str(array.dtype)) for array in values]
            head = [images, len(inputs), len(answers), *types, *(array.size for array in values)]
            data.write(np.array(head, np.int64).tobytes())
            for array in (*values, *(most.astype(np.float32) for most in ties)):
                data.write(array.tobytes())
            table[symbol] = list(told.values())
    shared = {**kernel_sources(unit.read_text() for unit in units), **runtime_sources()}
    units += [_write(folder / name, source) for name, source in shared.items()]
    units += [_write(folder / "table.c", _write_table(table)), Path(__file__).with_name("driver.c")]
    program = folder / "program"
    flags = [*target.flags, f"-I{kernel_include_dirs()[1]}"]
    compile_program(units, objects, program, sanitizer, flags)
    size = f"{len(graphs)} regions for {target.isa}"
    return run_program([str(program), str(folder / "data.bin"), str(BOUND)], test, size, start)


def _declare(symbol: str, told: Sequence[int]) -> str:
    arguments = "const void *const *inputs, void *const *outputs, int64_t images"
    declared = f"extern int {symbol}({arguments}{', const int64_t *sizes' * bool(told)});\n"
    if told:
        sizes = ", ".join(map(str, told))
        declared += (
            f"static int {symbol}_told({arguments}) {{\n  const int64_t sizes[] = {{{sizes}}};\n"
            f"  return {symbol}(inputs, outputs, images, sizes);\n}}\n"
        )
    return declared


def _write(path: Path, source: str) -> Path:
    path.write_text(source)
    return path


def _write_table(symbols: Mapping[str, Sequence[int]]) -> str:
    """The regions by name, those of open sizes with what they are told."""
    declared = "".join(map(_declare, symbols, symbols.values()))
    rows = "".join(f'  {{"{s}", {s}{"_told" * bool(told)}}},\n' for s, told in symbols.items())
    return (
        f'#include "convoy/region.h"\n{declared}'
        "typedef struct sample { const char *name; convoy_region region; } sample;\n"
        f"const sample samples[] = {{\n{rows}}};\nconst int sample_count = {len(symbols)};\n"
    )
