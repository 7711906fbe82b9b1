"""One network again: from a kept file, or from its seed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from convoy.text import line
from fuzz.campaign.case import Case, draw_case, read_case
from fuzz.campaign.crew import Crew, in_words
from fuzz.campaign.oracle import NETWORKS
from fuzz.networks.bundle import form_of
from worker import Crash

SECONDS = 300.0


def replay(named: str, doors: tuple[str, ...], always: tuple[str, ...] = ()) -> int:
    """Run a network and print what became of it; returns the exit code.

    Parameters
    ----------
    named : str
        A file, or ``S:i``.
    doors : tuple[str, ...]
        Doors of the campaign it comes from, which its case is drawn from.
    always : tuple[str, ...]
        What all networks of that campaign were: ``quantised``, ``sides``.
    """
    folder = Path(tempfile.mkdtemp(prefix="convoy-fuzz-")) / "replay"
    folder.mkdir()
    crew = Crew()
    try:
        if Path(named).is_file():
            model = onnx.load(named)
            number, case = 0, read_case(model)
            onnx.save(model, folder / "0.onnx")
            refused = crew.oracle("check_job", (str(folder), 0))
        else:
            seed, _, name = named.partition(":")
            if not (seed.isdigit() and name.rstrip("t").isdigit()):
                print(f"expected a file, or SEED:NUMBER, got {line(named)!r}")
                return 2
            bundle = int(name.rstrip("t")) // NETWORKS
            case = draw_case(np.random.default_rng([int(seed), bundle, 1]), doors)
            made = crew.oracle("prepare", (int(seed), bundle, str(folder), always))
            number, refused = next((n["number"], n["refused"]) for n in made if n["name"] == name)
        model = onnx.load(folder / f"{number}.onnx")
        print(describe(model))
        print(f"case: {case.text}")
        if refused is not None:
            print(f"ONNX Runtime: {refused}")
            return 2
        outcome = in_a_word(crew, folder, number, case)
        print(f"Convoy: {outcome or 'right'}")
        if outcome:
            plain = crew.judge_plain_tvm(folder, number, case, SECONDS)
            print(f"plain TVM: {plain or 'right'}")
        return 1 if outcome else 0
    finally:
        crew.end()
        shutil.rmtree(folder.parent)


def in_a_word(crew: Crew, folder: Path, number: int, case: Case) -> str | None:
    """What is wrong with a network's answer; None if nothing is."""
    found = crew.judge(folder, (number,), case, SECONDS)
    if isinstance(found, Crash):
        return in_words(found)
    if isinstance(found, str):
        return found
    if number not in found:
        return None
    task = (str(folder), number, str(folder / f"{number}-got.npz"), case.precision)
    rounding = crew.oracle("is_rounding", task) is True
    return None if rounding else found[number]


def run_kept(files: Sequence[Path]) -> dict[str, str]:
    """What fails of kept networks, by file name.  Those of one form and case are compiled as one model."""
    folder = Path(tempfile.mkdtemp(prefix="convoy-fuzz-")) / "kept"
    folder.mkdir()
    crew = Crew()
    alike: dict[object, list[int]] = {}
    failed: dict[str, str] = {}
    try:
        for number, file in enumerate(files):
            model = onnx.load(file)
            onnx.save(model, folder / f"{number}.onnx")
            refused = crew.oracle("check_job", (str(folder), number))
            if refused is not None:
                failed[file.name] = f"ONNX Runtime: {refused}"
                continue
            alike.setdefault((form_of(model), replace(read_case(model), optimise="-O2")), []).append(number)
        for (_, case), numbers in alike.items():  # type: ignore[misc]
            found = crew.judge(folder, tuple(numbers), case, SECONDS)
            ran = isinstance(found, dict)
            for number in found if ran else numbers:
                outcome = in_a_word(crew, folder, number, case)
                if outcome:
                    failed[files[number].name] = outcome
    finally:
        crew.end()
        shutil.rmtree(folder.parent)
    return failed


def describe(model: onnx.ModelProto) -> str:
    """A network in text, a node a line, and of its weights their shapes."""
    if len(model.graph.node) >= 60:
        return ""
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.initializer[:]
    weights = (f"   {tensor.name}: {list(tensor.dims)}" for tensor in model.graph.initializer)
    return "\n".join([str(onnx.printer.to_text(graph)), *weights])
