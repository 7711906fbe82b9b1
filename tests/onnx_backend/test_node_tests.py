"""ONNX's own node tests: what plain TVM passes, Convoy passes, with every region taken that can be.

Here up to ``MOST`` cases of an op run that differ, each once, with constants where it has them;
``scripts/node-tests`` runs all.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnx_backend.cases import Case, load_cases
from onnx_backend.run import run, summary, write_list

MOST = 10
"""Of an op: a third of the cases is of ops that have more."""
FEW = 8
"""So many whole numbers of a constant say how an op is asked: axes, sizes, pads."""
LIST = Path(__file__).parents[2] / "results" / "onnx_node_tests.txt"


def each_once(cases: list[Case]) -> list[Case]:
    """The cases, each once, with constants where that can be; without function bodies written out."""
    names = {case.name for case in cases}
    return [c for c in cases if "_expanded" not in c.name and f"{c.name}/bound" not in names]


def traits(case: Case) -> set[object]:
    """What sets a case apart: attributes, types, ranks, empty tensors, and constants that say how."""
    graph = case.model.graph
    found: set[object] = set()
    for node in graph.node:
        found.add((node.op_type, *map(bool, node.input), len(node.output)))
        found.update((node.op_type, a.name, str(helper.get_attribute_value(a))) for a in node.attribute)
    for i, array in enumerate(map(numpy_helper.to_array, graph.initializer)):
        if array.dtype.kind == "i" and array.size <= FEW:
            found.add((i, *array.flat))
    arrays = [array for given, _ in case.data_sets for array in given if isinstance(array, np.ndarray)]
    arrays += map(numpy_helper.to_array, graph.initializer)
    found.add(tuple(array.ndim for array in arrays))
    found.add(any(array.size == 0 for array in arrays))
    found.update((i, str(array.dtype)) for i, array in enumerate(arrays))
    found.update(value.type.SerializeToString() for value in graph.output)
    return found


def some_of_each_op(cases: list[Case]) -> list[Case]:
    """Not more than ``MOST`` of each, in their order; a case of several ops is of what it has most of.

    Each is the one with the most traits that those before it lack.
    """
    of_ops: dict[str, list[tuple[str, set[object]]]] = {}
    for case in cases:
        ops = Counter(node.op_type for node in case.model.graph.node)
        of_ops.setdefault(ops.most_common(1)[0][0], []).append((case.name, traits(case)))
    chosen: set[str] = set()
    for same in of_ops.values():
        seen: set[object] = set()
        for _ in range(MOST):
            name, has = max(same, key=lambda one: len(one[1] - seen))
            if has <= seen:
                break
            chosen.add(name)
            seen |= has
    return [case for case in cases if case.name in chosen]


@pytest.mark.slow
def test_convoy_passes_what_plain_tvm_passes() -> None:
    cases = load_cases()
    chosen = some_of_each_op(each_once(cases))
    results = run(chosen)
    write_list(results, LIST)
    print(f"{summary(results)}; the list is in {LIST}")
    print(f"{len(cases) - len(chosen)} more cases of these ops are left to scripts/node-tests, for time")
    (small,) = (r for r in results if r.name == "test_abs")
    assert small.convoy.regions == 1, "regions too small to be worth a call were given back"
    lost = [f"{r.name}: {r.convoy.reason}" for r in results if r.lost]
    assert not lost, "\n".join(lost)
