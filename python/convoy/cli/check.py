"""``convoy check``: is the answer ONNX Runtime's?"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from onnx import ModelProto

from convoy.bench.accuracy import (
    BOUND,
    LEAST_COSINE,
    Difference,
    compare_outputs,
    reference_outputs,
    same_top,
)
from convoy.bench.doubles import MOST_FLOPS, judge_in_doubles
from convoy.bench.draws import hold_draws
from convoy.bench.inner import ONE_VALUE, blind_outputs, expose_inner, proves_nothing
from convoy.bench.inputs import seeded_inputs
from convoy.bench.layers import compare_layers
from convoy.bench.nudged import allow_for_ties, own_movement
from convoy.bench.units import Units, count_units, is_quantised
from convoy.cli.console import print_error, progress, say, show
from convoy.cli.options import (
    AccuracyOption,
    Model,
    PrecisionOption,
    Sizes,
    Strict,
    Target,
    Threads,
    make_options,
    parse_sizes,
)
from convoy.onnx_file import Shapes as ReadShapes
from convoy.onnx_file import parse_file
from convoy.options import Options
from convoy.report.sheet import Sheet
from convoy.text import line
from convoy.zoo import strip_softmax

Bound = Annotated[
    float, typer.Option("--bound", metavar="E", help="Largest error over largest output that passes.")
]
Layers = Annotated[
    bool,
    typer.Option("--layers", help="Compare every inner tensor, too, and name the kernel of the first off."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the random inputs.")]


def check_model(
    model: Model,
    bound: Bound = BOUND,
    seed: Seed = 0,
    target: Target = None,
    threads: Threads = 0,
    strict: Strict = False,
    accuracy: AccuracyOption = Options.accuracy,
    precision: PrecisionOption = "float32",
    shape: Sizes = None,
    layers: Layers = False,
) -> None:
    """Compare Convoy with ONNX Runtime on seeded random inputs.

    ONNX Runtime runs the network as written, its optimisations off.  Printed per output: the
    largest absolute error, the largest output, their quotient, and the spread of the outputs (near
    zero: they are all alike and the comparison proves little).  A model that ends in a softmax is
    compared before it, where an error shows.  Where an output is one value throughout, or hardly
    changes with the inputs, inner tensors are compared, too.  The exit code is 1 if a quotient is past
    the bound, or nothing varies.  If ONNX Runtime's own answer moves past the bound, too, when its
    weights move by one unit in the last place, that is said.  A network below five GFLOP is computed
    in float64 then, which says who is off.

    A quantised network is compared with ONNX Runtime's integer kernels, in units of its outputs' scales:
    how far it is off at most, how far those kernels are from the network as written, how many numbers are
    off by half a unit or more, the cosine, and how often the largest number is the same.
    Its answer may be off by two units, or by twice what those kernels are from the network as written; the
    cosine is at least 0.99, or theirs.

    With --precision bf16 the answer may be off by what rounding to 8 bits makes of it. It passes by the
    cosine of the angle to ONNX Runtime's, which is at least 0.999, and so does each layer.

    Examples:

    \b
      convoy check resnet50.onnx
      convoy check resnet50.onnx --layers
      convoy check net.onnx --shape data=4x3x224x224 --seed 7 --bound 1e-5
      convoy check resnet50.onnx --accuracy direct
      convoy check resnet50.onnx --precision bf16 --layers
      convoy check yolo.onnx --shape "images=1x3x{320,640}x640"
    """
    from convoy.relax.versions import describe_version, list_versions, lists_sizes

    if not 0 <= bound < float("inf"):
        raise typer.BadParameter(f"expected --bound of at least 0, got {bound}")
    sizes = parse_sizes(shape)
    # external data stays outside: a message holds 2 GB at most
    whole, drawing = hold_draws(parse_file(model))
    if drawing:
        say(
            line(
                f"random numbers are drawn by {', '.join(drawing)}: compared with constants in their place"
            )
        )
    versions = list_versions(whole, sizes)
    passed = True
    for version in versions:
        if lists_sizes(sizes):
            say(line(describe_version(version)))
        options = make_options(threads=threads, strict=strict, accuracy=accuracy, precision=precision)
        passed &= _check(model, whole, version, bound, seed, target, options)
        if layers:
            options = make_options(threads=threads, accuracy=accuracy, precision=precision)
            passed &= _check_layers(model, whole, version, bound, seed, target, options)
    if not passed:
        raise typer.Exit(1)


def _check(
    model: Path,
    whole: ModelProto,
    shapes: ReadShapes,
    bound: float,
    seed: int,
    target: str | None,
    options: Options,
) -> bool:
    """Compare in one version; print it.

    Returns
    -------
    bool
        Something was compared, and all of it agrees.
    """
    import convoy
    from convoy.deploy.runner import Runner
    from convoy.relax.importer import load

    with progress(f"checking {model.name}") as tell:
        proto = strip_softmax(whole)
        inputs = seeded_inputs(proto, shapes, seed)
        tell("running ONNX Runtime")
        reference = reference_outputs(proto, inputs, model.parent)
        outside = len(reference)
        blind = blind_outputs(proto, inputs, reference, model.parent)
        proto = expose_inner(proto, inputs, blind, model.parent)
        if len(proto.graph.output) > outside:
            reference = reference_outputs(proto, inputs, model.parent)
        fixed = {**{name: x.shape for name, x in inputs.items()}, **shapes}
        tell("importing the model")
        module = load(proto, fixed, folder=model.parent)
        executable = convoy.compile(
            module,
            target,
            options=options,
            progress=tell,
        )
        tell("running Convoy")
        outputs = Runner(executable).run(list(inputs.values()))
        integers = is_quantised(proto)
        if integers:
            tell("running ONNX Runtime's integer kernels")
            plain, reference = (
                reference,
                reference_outputs(proto, inputs, model.parent, optimised=True),
            )
    names = [output.name for output in proto.graph.output]
    differences = compare_outputs(names, outputs, reference)
    if integers:  # the answer of integer kernels may be flat where that of floats is not
        flat = [name for name, array in zip(names, reference, strict=True) if proves_nothing(array)]
        blind |= dict.fromkeys(flat, ONE_VALUE)
    units = count_units(proto, outputs, reference, plain) if integers else []
    if integers:
        units = allow_for_ties(proto, inputs, plain, units, model.parent)
    narrow = options.precision == "bf16" and not integers
    if integers:
        show(_table_of_units(units, blind))
    elif narrow:
        tops = [
            same_top(got.astype(np.float64), want.astype(np.float64))
            for got, want in zip(outputs, reference, strict=True)
        ]
        show(_table_of_cosines(differences, tops, blind))
    else:
        show(_table(differences, bound, blind))
    for name in names:
        if name in blind:
            say(line(f"{name}: {blind[name]}; that it agrees proves nothing"))
    for u in units:
        if u.passed and u.elsewhere:
            ours = f"infinite or NaN on one side only: {u.elsewhere} of {prod(u.shape)} numbers"
            say(line(f"{u.output}: {ours}, and {u.own_elsewhere} between ONNX Runtime's own two answers"))
    if names[outside:]:
        say(line(f"inner tensors compared in its place: {', '.join(names[outside:])}"))
    if names[:outside] != [output.name for output in whole.graph.output]:
        say("compared before the closing softmax")
    problems = {d.output: d.problem(bound, options.precision) for d in differences}
    if integers:
        problems = {u.output: u.problem for u in units}
    past = {name: problem for name, problem in problems.items() if problem}
    for name, problem in past.items():
        print_error(line(f"{name}: {problem}"))
    if past and not integers and not narrow:
        with progress(f"checking {model.name}") as tell:
            tell("running ONNX Runtime on weights moved by one unit in the last place")
            moved = own_movement(proto, inputs, reference, model.parent)
            verdicts = {}
            if executable.report.flops_total <= MOST_FLOPS:
                tell("computing the answer in float64")
                verdicts = judge_in_doubles(proto, inputs, outputs, reference, model.parent)
        for name in past:
            if moved[name] > bound:
                own = f"ONNX Runtime's own answer moves by {moved[name]:.2g} when weights move by one unit"
                advice = "with these inputs it is mostly rounding; try another --seed or real data"
                say(line(f"{name}: {own} in the last place: {advice}"))
            if name in verdicts:
                say(line(f"{name}: {verdicts[name].text(bound)}"))
    if len(blind) == len(names):
        print_error(
            "nothing compared: no output and no inner tensor varies; try another --seed or real data"
        )
    return not past and len(blind) < len(names)


def _check_layers(
    model: Path,
    whole: ModelProto,
    shapes: ReadShapes,
    bound: float,
    seed: int,
    target: str | None,
    options: Options,
) -> bool:
    """Compare every inner tensor; print them, and the first that is off with its kernel."""
    with progress(f"checking the layers of {model.name}") as tell:
        found = compare_layers(
            whole, seeded_inputs(whole, shapes, seed), shapes, folder=model.parent, target=target,
            options=options, progress=tell,
        )  # fmt: skip
    integers = any(layer.unit for layer in found)
    narrow = options.precision == "bf16" and not integers
    measure = "units: mean, most" if integers else "cosine" if narrow else "error / tensor"
    table = Sheet("node", "tensor", "shape", measure, "computed by")
    for layer in found:
        d = layer.difference
        passed = layer.passes(bound, options.precision)
        kernel = f"within {layer.kernel}" if layer.within else layer.kernel
        shape = "×".join(map(str, d.shape))
        style = None if passed else "red"
        units = f"{layer.units:.2g}, {d.absolute / layer.unit:.3g}" if integers else ""
        error = units or (f"{d.cosine:.6f}" if narrow else f"{d.relative:.2e}")
        table.add_row(layer.node, d.output, shape, error, kernel, style=style)
    show(table)
    off = next((layer for layer in found if not layer.passes(bound, options.precision)), None)
    if off is not None:
        d = off.difference
        allowed = max(bound, d.last_place)
        wanted = f"expected an error of {allowed:g} of its largest value, got {d.relative:.2g}"
        if narrow:
            wanted = f"expected a cosine of {LEAST_COSINE} or more, got {d.cosine:.5f}"
        if integers:
            wanted = f"expected at most {off.allowed:.3g} units in the mean, got {off.units:.3g}"
        first = f"the first tensor that is off: {d.output} of {off.node}"
        print_error(line(f"{first}: {wanted}; computed by {off.kernel}"))
    return off is None


def _table_of_units(units: list[Units], blind: Collection[str]) -> Sheet:
    names = ("unit", "off by", "of its own", "≥ ½ unit", "cosine", "top 1", "")
    table = Sheet("output", "shape", *names)
    for u in units:
        table.add_row(
            u.output,
            "×".join(map(str, u.shape)),
            f"{u.unit:.3g}",
            f"{u.largest:.3g}",
            f"{u.own:.3g}",
            f"{u.share:.2%}",
            f"{u.cosine:.6f}",
            "" if u.top is None else f"{u.top:.0%}",
            "proves nothing" if u.passed and u.output in blind else u.verdict,
            style=None if u.passed else "red",
        )
    return table


def _table_of_cosines(
    differences: list[Difference], tops: list[float | None], blind: Collection[str]
) -> Sheet:
    table = Sheet("output", "shape", "largest output", "spread", "error / output", "cosine", "top 1", "")
    for d, top in zip(differences, tops, strict=True):
        passed = d.passes(0.0, "bf16")
        table.add_row(
            d.output,
            "×".join(map(str, d.shape)),
            f"{d.largest:.4g}",
            f"{d.spread:.3g}",
            f"{d.relative:.2e}",
            f"{d.cosine:.6f}",
            "" if top is None else f"{top:.0%}",
            f"below {LEAST_COSINE}" if not passed else "proves nothing" if d.output in blind else "ok",
            style=None if passed else "red",
        )
    return table


def _table(differences: list[Difference], bound: float, blind: Collection[str]) -> Sheet:
    table = Sheet("output", "shape", "largest error", "largest output", "spread", "error / output", "")
    for d in differences:
        passed = d.passes(bound)
        table.add_row(
            d.output,
            "×".join(map(str, d.shape)),
            f"{d.absolute:.2e}",
            f"{d.largest:.4g}",
            f"{d.spread:.3g}",
            f"{d.relative:.2e}",
            f"past {bound:g}" if not passed else "proves nothing" if d.output in blind else "ok",
            style=None if passed else "red",
        )
    return table
