"""ONNX's own node tests: what plain TVM passes, Convoy passes, with every region taken that can be.

Here ``MOST`` cases of an op run, each once, with constants where it has them; ``scripts/node-tests`` runs
all.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from onnx_backend.cases import Case, load_cases
from onnx_backend.run import run, summary, write_list

MOST = 10
"""Of an op, from all over the list of its cases: a quarter of the cases is of ten ops that have more."""
LIST = Path(__file__).parents[2] / "results" / "onnx_node_tests.txt"


def each_once(cases: list[Case]) -> list[Case]:
    """The cases, each once, with constants where that can be; without function bodies written out."""
    names = {case.name for case in cases}
    return [c for c in cases if "_expanded" not in c.name and f"{c.name}/bound" not in names]


def some_of_each_op(cases: list[Case]) -> list[Case]:
    """Not more than ``MOST`` of each, in their order; a case of several ops is of what it has most of."""
    of_ops: dict[str, list[Case]] = {}
    for case in cases:
        ops = Counter(node.op_type for node in case.model.graph.node)
        of_ops.setdefault(ops.most_common(1)[0][0], []).append(case)
    chosen = {
        same[i * len(same) // count].name
        for same in of_ops.values()
        for count in [min(MOST, len(same))]
        for i in range(count)
    }
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
