"""What Convoy makes of a mutant: one clear line, a right answer, or a finding."""

from __future__ import annotations

import math
import re
import resource
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper

MEMORY = 12 << 30
"""Bytes of address space a process may have; TVM alone maps some."""
Accuracy = Literal["fast", "direct"]

LONGEST_LINE = 2000
"""Characters of a message that is still one clear line."""
_FORM = re.compile(r"^[^:\n]+: .*; .+$")
"""``<step>: <node>: <problem>; <remedy>``."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    seed: int
    what: str
    kind: str
    """``refused``, ``right``, ``unknown`` (ONNX Runtime refuses it) or ``FOUND``."""
    text: str = ""

    @property
    def good(self) -> bool:
        return self.kind != "FOUND"


def limit_memory() -> None:
    """Limit the memory of all that this process starts: who asks for a terabyte gets an error."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def compile_and_run(
    path: Path, accuracy: Accuracy = "fast"
) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """The model, seeded inputs and Convoy's answers."""
    import convoy
    from convoy.bench.inputs import seeded_inputs
    from convoy.deploy.runner import Runner
    from convoy.onnx_file import parse_file
    from convoy.options import Options

    executable = convoy.compile(path, options=Options(threads=1, accuracy=accuracy))
    model = parse_file(path)
    inputs = seeded_inputs(model)
    return model, inputs, Runner(executable).run(list(inputs.values()))


def judge_convoy(seed: int, folder: Path) -> Verdict:
    """Compile and run the mutant of ``seed``; answers are kept beside it as ``answers.npz``."""
    from convoy.errors import ConvoyError
    from mutants.mutant import make_mutant

    mutant = make_mutant(seed, folder)

    def found(text: str) -> Verdict:
        return Verdict(seed, mutant.what, "FOUND", text)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, inputs, answers = compile_and_run(mutant.path)
    except ConvoyError as error:
        text = str(error)
        if problem := unclear(text):
            return found(f"{problem}: {text[:1000]!r}")
        return Verdict(seed, mutant.what, "refused", text)
    except Exception as error:  # whatever else there is, is a finding
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        return found(f"{type(error).__name__}: {lines[0][:300]} … {lines[-1][:300]}")
    if mutant.must_refuse:
        return found("an answer, where the data lies outside of the model's folder or is not there")
    np.savez(
        mutant.path.parent.parent / "answers.npz",
        **{f"input{i}": x for i, x in enumerate(inputs.values())},
        **{f"answer{i}": y for i, y in enumerate(answers)},
    )
    return Verdict(seed, mutant.what, "answered")


def unclear(text: str) -> str:
    """What keeps an error's text from being one clear line; empty if nothing does."""
    if "\n" in text.strip() or "\r" in text:
        return "more than one line"
    if any(not character.isprintable() for character in text):
        return "characters that no terminal should get"
    if len(text) > LONGEST_LINE:
        return f"a line of {len(text)} characters"
    return "" if _FORM.match(text) else "not in the form of an error"


def judge_answer(seed: int, what: str, folder: Path) -> Verdict:
    """Is what ``judge_convoy`` left ONNX Runtime's answer?"""
    from convoy.bench.accuracy import BOUND, compare_outputs, reference_outputs
    from convoy.bench.inputs import model_inputs
    from convoy.bench.units import count_units, is_quantised
    from convoy.errors import ModelError
    from convoy.onnx_file import parse_file

    path = folder / str(seed) / "model" / "model.onnx"
    kept = np.load(folder / str(seed) / "answers.npz")
    model = parse_file(path)
    names = [value.name for value in model_inputs(model)]
    inputs = {name: kept[f"input{i}"] for i, name in enumerate(names)}
    answers = [kept[f"answer{i}"] for i in range(sum(key.startswith("answer") for key in kept.files))]
    try:
        reference = reference_outputs(model, inputs, path.parent)
    except ModelError as error:
        return Verdict(seed, what, "unknown", str(error)[:300])
    outputs = [value.name for value in model.graph.output]
    try:
        differences = compare_outputs(outputs, answers, reference)
    except ModelError as error:
        return Verdict(seed, what, "FOUND", str(error))
    worst = max((d.relative for d in differences), default=0.0)
    if BOUND < worst < math.inf and _has_huge_weights(model):
        # docs/architecture.md: it costs its neighbours in a Winograd tile their digits; direct spares them
        _, _, direct = compile_and_run(path, "direct")
        worst = max(d.relative for d in compare_outputs(outputs, direct, reference))
    if BOUND < worst < math.inf and is_quantised(model):
        worst = 0.0 if all(u.passed for u in count_units(model, answers, reference)) else worst
    if worst > BOUND or math.isnan(worst):
        return Verdict(seed, what, "FOUND", f"wrong answer: an error of {worst:.2g} of its largest output")
    return Verdict(seed, what, "right")


def _has_huge_weights(model: onnx.ModelProto) -> bool:
    """A flipped bit may make one weight 1e36 among others near 0.01."""
    tensors = (
        numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == t.FLOAT and t.dims
    )
    sizes = (np.abs(weights[np.isfinite(weights)]) for weights in tensors)
    return any(size.size and size.max() > 1e6 * np.median(size) for size in sizes)


def new_folder() -> Path:
    """Where the mutants of a run are written; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="convoy-mutants-"))
