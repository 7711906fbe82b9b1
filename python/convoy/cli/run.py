"""``convoy run``: an exported library on arrays from files, on pictures, or on random numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from convoy.cli.arrays import expect_outputs, read_inputs, write_outputs
from convoy.cli.console import note, print_error, print_json, say, show
from convoy.cli.images import parse_channels, read_images
from convoy.cli.options import HintOption, Library, Pin, parse_shapes
from convoy.deploy.description import Description, Tensor, check_file, read_description
from convoy.deploy.dtypes import is_float, numpy_dtype
from convoy.errors import ModelError
from convoy.graph.written_sizes import complete_shapes
from convoy.options import MOST_THREADS, shape_option
from convoy.report.decision import count_of
from convoy.report.sheet import Sheet
from convoy.text import line

BOUND = 1e-4
"""The error of the library's example that passes: what Convoy promises."""
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "-i",
        "--input",
        metavar="[NAME=]FILE",
        help="An input, .npy, .npz, .pb, .txt or .csv, in the model's order or by name; repeatable.  "
        "Default: random numbers of the library's shapes.",
        show_default=False,
    ),
]
Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT.npy",
        help="Where an output goes, in the model's order; repeatable; .npy, .pb, .txt or .csv. "
        "One .npz takes all of them, by name.  Default: what they are is printed.",
        show_default=False,
    ),
]
Images = Annotated[
    list[Path] | None,
    typer.Option("--image", metavar="FILE", help="A picture, resized to the input; several are a batch."),
]
Mean = Annotated[
    str,
    typer.Option("--mean", metavar="R,G,B", help="Taken from a picture's values, which are 0 to 1."),
]
Deviation = Annotated[str, typer.Option("--std", metavar="R,G,B", help="By which they are divided then.")]
Threads = Annotated[
    int,
    typer.Option(
        "--threads", min=0, max=MOST_THREADS, metavar="N", help="Threads of a run; 0: as compiled."
    ),
]
Streams = Annotated[
    int,
    typer.Option("--streams", min=0, metavar="N", help="Runs at once, of one thread each; 0: by --hint."),
]
Duration = Annotated[
    float, typer.Option("--duration", min=0, metavar="S", help="Run for S seconds, and print the times.")
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", "--repeat", min=0, metavar="N", help="Run at least N times, and print the times."
    ),
]
Warmup = Annotated[
    int, typer.Option("--warmup", min=0, metavar="N", help="Runs of each stream that are not timed.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of random inputs.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SHAPE",
        help="Shape of a random input or of pictures, where the library leaves more open than the batch.  "
        "Repeatable.",
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Run the library's own example; exit code 1 past 1e-4.")
]
Json = Annotated[bool, typer.Option("--json", help="Print outputs and times as JSON, all samples too.")]


def run_library(
    library: Library,
    inputs: Inputs = None,
    outputs: Outputs = None,
    image: Images = None,
    mean: Mean = "0",
    std: Deviation = "1",
    threads: Threads = 0,
    streams: Streams = 0,
    hint: HintOption = "latency",
    duration: Duration = 0.0,
    iterations: Iterations = 0,
    warmup: Warmup = 1,
    pin: Pin = False,
    seed: Seed = 0,
    shape: Shapes = None,
    check: Check = False,
    as_json: Json = False,
) -> None:
    """Run a compiled library.

    Only TVM's runtime is used: what works here works on a machine without Convoy.

    Examples:

    \b
      convoy run resnet50.so -i image.npy -o scores.npy
      convoy run resnet50.so --image cat.jpg --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
      convoy run two_inputs.so -i mask=a.npy -i data=b.npy -o all.npz --threads 4
      convoy run resnet50.so --duration 10 --hint throughput --json
      convoy run any_size.so --shape data=1x3x320x640
    """
    check_file(library)
    says = read_description(library)
    means, deviations = parse_channels(mean, "--mean"), parse_channels(std, "--std")
    _expect_use(
        bool(inputs), bool(image), {"--shape": bool(shape), "--mean": mean != "0", "--std": std != "1"}
    )
    if outputs:
        expect_outputs(outputs, len(says.outputs) if says else None)
    arrays = _read(inputs, image, says, means, deviations, parse_shapes(shape), seed)
    from convoy.deploy.requests import PERCENTILES, Load, Stream, measure_requests, streams_for

    chosen, of_hint = streams_for(hint)
    chosen = streams or chosen
    count = threads or (1 if chosen > 1 else of_hint)
    if count:
        # read when the library is loaded: the first by regions, the second by what was left to TVM
        os.environ["CONVOY_NUM_THREADS"] = os.environ["TVM_NUM_THREADS"] = str(count)
    from convoy.deploy.runner import Runner
    from convoy.deploy.tensors import arrays as to_arrays

    runner = Runner(library)
    if check:
        _check(runner.check())
        return
    runner.bind(arrays)
    results = to_arrays(runner.call())
    names = [tensor.name for tensor in says.outputs] if says else []
    found: dict[str, Any] = {"outputs": _summarize(results, names)}
    if duration or iterations:
        from convoy.bench.text import format_ms

        load = Load(chosen, duration, iterations, warmup, pin)

        def open_stream() -> Stream:
            runner.bind(arrays)  # for the calls of this thread
            return runner.call

        times = measure_requests(open_stream, load)
        found["latency_ms"] = times.as_dict()
        p50, p90, p99 = (format_ms(times.percentile(percent)) for percent in PERCENTILES)
        tell = note if as_json else say
        tell(
            f"median of {len(times.milliseconds)} runs: {p50} ms; p90 {p90}, p99 {p99} ms; "
            f"{times.throughput:.1f} runs/s in {count_of(chosen, 'stream')}"
        )
    if outputs:
        write_outputs(outputs, results, names)
    if as_json:
        print_json(found)
    elif not outputs:
        show(_table(found["outputs"]))


def _expect_use(inputs: bool, pictures: bool, given: Mapping[str, bool]) -> None:
    """Refuse options that would change nothing: of pictures without one, of inputs that are given."""
    if inputs and pictures:
        raise typer.BadParameter("expected -i or --image, got both")
    if inputs and given["--shape"]:
        raise typer.BadParameter("expected -i or --shape, got both; a file has its own shape")
    for option in ("--mean", "--std"):
        if given[option] and not pictures:
            raise typer.BadParameter(f"expected {option} with --image, got no picture")


def _read(
    given: Sequence[str] | None,
    images: Sequence[Path] | None,
    says: Description | None,
    mean: Sequence[float],
    deviation: Sequence[float],
    shapes: Mapping[str, Sequence[int | None]],
    seed: int,
) -> list[NDArray[Any]]:
    """The inputs of a run, from wherever they come."""
    tensors = says.versions[0].inputs if says and says.versions else says.inputs if says else None
    if given:
        return read_inputs(given, says.inputs if says else None)
    if tensors is None:
        raise ModelError(
            "run", "inputs", "expected -i for a library that does not describe itself, got none", "give -i"
        )
    if unknown := set(shapes) - {tensor.name for tensor in tensors}:
        names = ", ".join(tensor.name for tensor in tensors)
        raise ModelError(
            "run", "--shape", f"expected one of {names}, got {min(unknown)}", "see convoy inspect"
        )
    sized = _sized(tensors, shapes, batch=None if images else 1)
    if images:
        if len(tensors) != 1:
            problem = f"expected a library of one input, got {len(tensors)}"
            raise ModelError("run", "--image", problem, "give arrays by -i")
        return [read_images(images, sized[0], mean, deviation)]
    generator = np.random.default_rng(seed)
    return [_random(*of, generator) for of in zip(tensors, sized, strict=True)]


def _sized(
    tensors: Sequence[Tensor], shapes: Mapping[str, Sequence[int | None]], batch: int | None
) -> list[Tensor]:
    """The inputs with the sizes that ``--shape`` gives, and those that follow from them."""
    given = [shapes.get(tensor.name, ()) for tensor in tensors]
    completed = complete_shapes([tensor.shape or () for tensor in tensors], given, batch)
    return [
        tensor if tensor.shape is None and not numbers else replace(tensor, shape=shape)
        for tensor, numbers, shape in zip(tensors, given, completed, strict=True)
    ]


def _random(tensor: Tensor, sized: Tensor, generator: np.random.Generator) -> NDArray[Any]:
    """Floats from a standard normal, others from {0, 1}, as in ``convoy check``."""
    if sized.shape is None or not tensor.dtype:
        raise ModelError(
            "run",
            f"input {tensor.name}",
            "expected an input whose shape the library says, got another",
            "give -i",
        )
    shape = [size for size in sized.shape if isinstance(size, int)]
    if len(shape) < len(sized.shape):
        raise ModelError(
            "run",
            f"input {tensor.name}",
            f"expected all of its sizes, got {tensor}, which are open in part",
            f"give its shape, e.g. {shape_option(tensor.name, sized.shape)}, or -i",
        )
    drawn = generator.standard_normal(shape) if is_float(tensor.dtype) else generator.integers(0, 2, shape)
    return drawn.astype(numpy_dtype(tensor.dtype))


def _summarize(results: Sequence[NDArray[Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Name, shape, type, and the range of the values of each output."""
    found = []
    for i, array in enumerate(results):
        kept = array[np.isfinite(array)] if array.dtype.kind == "f" else array
        low, high, mean = (float(f(kept)) if kept.size else None for f in (np.min, np.max, np.mean))
        name = names[i] if i < len(names) else f"output_{i}"
        shape = list(array.shape)
        found.append(
            {"name": name, "shape": shape, "dtype": array.dtype.name, "min": low, "max": high, "mean": mean}
        )
    return found


def _table(outputs: Sequence[dict[str, Any]]) -> Sheet:
    table = Sheet("output", "type", "shape", "least", "largest", "mean")
    for output in outputs:
        values = ("" if output[k] is None else f"{output[k]:.4g}" for k in ("min", "max", "mean"))
        table.add_row(output["name"], output["dtype"], "×".join(map(str, output["shape"])), *values)
    return table


def _check(error: float) -> None:
    say(line(f"the example's error over its largest output: {error:.1e}"))
    if not error <= BOUND:
        print_error(f"run: expected an error of {BOUND:g} at most, got {error:.1e}")
        raise typer.Exit(1)
