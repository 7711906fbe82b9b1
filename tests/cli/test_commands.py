"""Each command on a tiny model: what it prints, what it writes, its exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from command import Result, tiny_model
from convoy.bench.accuracy import reference_outputs
from convoy.bench.machine import Rates
from convoy.bench.measure import Measurement, Timing
from convoy.bench.study import Settings, Study
from convoy.cli.app import COMMANDS
from convoy.cli.console import expect_file
from convoy.errors import ModelError
from convoy.onnx_file import parse_file

Command = Callable[..., Result]


@pytest.mark.slow
def test_compile_then_run_gives_the_answer_of_onnx_runtime(
    convoy_command: Command, model: Path, tmp_path: Path
) -> None:
    library, x_file, y_file = tmp_path / "tiny.so", tmp_path / "x.npy", tmp_path / "y.npy"
    compiled = convoy_command("compile", model, "-o", library)
    assert compiled.code == 0, compiled.err
    assert "ops offloaded in 1 region, 0 left to TVM" in compiled.out
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8), dtype=np.float32)
    np.save(x_file, x)
    ran = convoy_command("run", library, "-i", x_file, "-o", y_file)
    assert ran.code == 0, ran.err
    (expected,) = reference_outputs(onnx.load(model), {"x": x})
    np.testing.assert_allclose(np.load(y_file), expected, atol=1e-6)


@pytest.mark.slow
def test_the_library_runs_in_a_process_without_convoy(
    convoy_command: Command, model: Path, tmp_path: Path
) -> None:
    library = tmp_path / "tiny.so"
    assert convoy_command("compile", model, "-o", library).code == 0
    program = (
        "import sys; sys.modules['convoy'] = None\n"
        "import numpy as np, tvm\n"
        f"vm = tvm.relax.VirtualMachine(tvm.runtime.load_module({str(library)!r}), tvm.cpu())\n"
        "y = vm['main'](tvm.runtime.tensor(np.ones((1, 3, 8, 8), 'float32')))\n"
        "print(y.numpy().sum())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(1.0, abs=1e-5)  # a softmax


def test_run_writes_all_outputs_to_an_archive_and_times_repeats(
    convoy_command: Command, model: Path, tmp_path: Path
) -> None:
    library, x_file, archive = tmp_path / "tiny.so", tmp_path / "x.npy", tmp_path / "all.npz"
    convoy_command("compile", model, "-o", library)
    np.save(x_file, np.ones((1, 3, 8, 8), np.float32))
    ran = convoy_command("run", library, "-i", x_file, "-o", archive, "--repeat", "3")
    assert ran.code == 0, ran.err
    assert "median of 3 runs" in ran.out
    assert np.load(archive)["y0_softmax"].shape == (1, 5)


@pytest.mark.slow
def test_run_needs_tvms_runtime_only(convoy_command: Command, model: Path, tmp_path: Path) -> None:
    library, x_file, y_file = tmp_path / "tiny.so", tmp_path / "x.npy", tmp_path / "y.npy"
    assert convoy_command("compile", model, "-o", library).code == 0
    np.save(x_file, np.ones((1, 3, 8, 8), np.float32))
    program = (
        "import sys\n"
        "from convoy.cli.app import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "assert not {'tvm', 'onnx', 'convoy.bench', 'convoy.plan'} & set(sys.modules)"
    )
    arguments = ("run", library, "-i", x_file, "-o", y_file)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert np.load(y_file).sum() == pytest.approx(1.0, abs=1e-5)  # a softmax


@pytest.mark.slow
def test_check_passes_before_the_closing_softmax(convoy_command: Command, model: Path) -> None:
    result = convoy_command("check", model)
    assert result.code == 0, result.err
    assert "compared before the closing softmax" in result.out
    assert "y0" in result.out
    assert "ok" in result.out


def test_check_fails_past_the_bound(convoy_command: Command, model: Path) -> None:
    result = convoy_command("check", model, "--bound", "0")
    assert result.code == 1
    assert "past 0" in result.out
    (line,) = result.error_lines
    assert re.fullmatch(r"error: \w+: expected an error of 0 of its largest output, got [\d.e-]+", line)


@pytest.mark.slow
def test_check_in_bf16_judges_by_the_cosine(convoy_command: Command, model: Path) -> None:
    result = convoy_command("check", model, "--precision", "bf16", "--bound", "0", "--layers")
    assert result.code == 0, result.err
    assert "cosine" in result.out
    assert "top 1" in result.out


def test_check_takes_no_negative_seed(convoy_command: Command, model: Path) -> None:
    result = convoy_command("check", model, "--seed", "-1")
    assert result.code == 2
    assert "--seed" in result.err


@pytest.mark.slow
def test_check_takes_the_shape_of_a_symbolic_batch(convoy_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "dynamic.onnx"
    onnx.save(tiny_model(batch="N"), path)
    result = convoy_command("check", path, "--shape", "x=3x3x8x8")
    assert result.code == 0, result.err
    assert "3×5" in result.out


def run_images(convoy_command: Command, folder: Path, count: int) -> Result:
    """Run the library m.so of a folder on so many images; what it computes is y.npy."""
    np.save(folder / "x.npy", np.ones((count, 3, 8, 8), np.float32))
    return convoy_command("run", folder / "m.so", "-i", folder / "x.npy", "-o", folder / "y.npy")


@pytest.mark.slow
def test_a_letter_in_a_shape_leaves_the_batch_open(convoy_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "dynamic.onnx"
    model = tiny_model(batch="N", softmax=False)
    for axis, name in ((2, "height"), (3, "width")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    onnx.save(model, path)
    result = convoy_command("compile", path, "-o", tmp_path / "m.so", "--strict", "--shape", "x=Nx3x8x8")
    assert result.code == 0, result.err
    for batch in (1, 3):
        result = run_images(convoy_command, tmp_path, batch)
        assert result.code == 0, result.err
        assert np.load(tmp_path / "y.npy").shape[0] == batch
    result = convoy_command("check", path, "--shape", "x=Nx3x8x8")
    assert result.code == 0, result.err
    result = convoy_command("check", path, "--shape", "x=Nx3xHx8")
    assert "expected a fixed size in axis 2, got height" in result.err


@pytest.mark.slow
def test_several_sizes_make_one_library(convoy_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "dynamic.onnx"
    onnx.save(tiny_model(batch="N", softmax=False), path)
    shape = "x={1,3}x3x8x8"
    result = convoy_command("compile", path, "-o", tmp_path / "m.so", "--strict", "--shape", shape)
    assert result.code == 0, result.err
    for batch in (1, 3):
        result = run_images(convoy_command, tmp_path, batch)
        assert result.code == 0, result.err
        assert np.load(tmp_path / "y.npy").shape[0] == batch
    result = run_images(convoy_command, tmp_path, 2)
    assert result.code == 1
    assert "expected one of the sizes x=1x3x8x8; x=3x3x8x8" in result.err
    result = convoy_command("check", path, "--shape", shape)
    assert result.code == 0, result.err
    assert "x=1x3x8x8" in result.out
    assert "x=3x3x8x8" in result.out
    result = convoy_command("explain", path, "--shape", shape)
    assert result.code == 2
    assert "only convoy compile and convoy check take {" in re.sub(r"[\s│]+", " ", result.err)


def test_check_leaves_weights_in_their_file(convoy_command: Command, tmp_path: Path) -> None:
    # a message holds 2 GB at most: what ONNX Runtime and the importer get is the model without its weights
    path, x = tmp_path / "external.onnx", np.ones((1, 3, 8, 8), np.float32)
    onnx.save(tiny_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    outside = parse_file(path)
    assert not any(tensor.raw_data for tensor in outside.graph.initializer)
    (got,) = reference_outputs(outside, {"x": x}, tmp_path)
    (want,) = reference_outputs(onnx.load(path), {"x": x})
    np.testing.assert_array_equal(got, want)
    result = convoy_command("check", path)
    assert result.code == 0, result.err


def test_explain_names_regions_steps_and_what_was_left(convoy_command: Command, model: Path) -> None:
    result = convoy_command("explain", model, "--disable", "nn.softmax")
    assert result.code == 0, result.err
    for text in ("Folded before partitioning", "Region convoy_", "conv2d", "Left to TVM", "softmax"):
        assert text in result.out


def test_explain_as_json_is_data(convoy_command: Command, model: Path) -> None:
    result = convoy_command("explain", model, "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert report["flops_share"] == 1.0
    assert [region["symbol"].startswith("convoy_") for region in report["regions"]] == [True]
    assert all({"node", "step", "choice", "reason"} <= set(d) for d in report["decisions"])


@pytest.mark.slow
def test_a_compiler_may_be_named_with_arguments(
    convoy_command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "gcc -g0")
    assert convoy_command("compile", model, "-o", tmp_path / "m.so").code == 0
    assert convoy_command("check", model).code == 0


def test_keep_keeps_the_generated_c(convoy_command: Command, model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert convoy_command("compile", model, "-o", tmp_path / "m.so", "--keep", kept).code == 0
    assert "#include" in "".join(path.read_text() for path in kept.rglob("*.c"))


@pytest.mark.slow
def test_bench_times_both_engines_and_verifies_them(convoy_command: Command, model: Path) -> None:
    result = convoy_command("bench", model, "--against", "onnxruntime", "--rounds", "2", "--threads", "1")
    assert result.code == 0, result.err
    rows = [line for line in result.out.splitlines() if line.startswith(("│ convoy", "│ onnxruntime"))]
    assert len(rows) == 2
    assert "1.00" in min(rows)  # of Convoy; the faster engine is first
    assert "onnxruntime is the best peer" in result.out
    assert "of the direct FLOP bound" in result.out


@pytest.mark.slow
def test_bench_of_several_runs_at_once_as_json(convoy_command: Command, model: Path) -> None:
    result = convoy_command(
        "bench", model, "--hint", "throughput", "--streams", "2", "--against", "onnxruntime",
        "--rounds", "2", "--iterations", "8", "--duration", "0.01", "--warmup", "2", "--pin", "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["settings"]["load"]["streams"] == 2
    (measured,) = found["results"].values()
    for timing in measured["timings"]:
        assert len(timing["samples"]) >= 8
        assert 0 < timing["p50"] <= timing["p90"] <= timing["p99"]
        assert timing["throughput"] > 0


@pytest.mark.parametrize(("wrong", "code"), [("onnxruntime", 0), ("convoy", 1)])
def test_bench_fails_by_its_own_wrong_answers_only(
    convoy_command: Command, monkeypatch: pytest.MonkeyPatch, wrong: str, code: int
) -> None:
    def timing(engine: str) -> Timing:
        error = 1.0 if engine == wrong else 0.0
        return Timing(engine, 1.0, 1.0, 1.0, 1.0, 1.0, 1e3, 0.0, 1.0, 1, error)

    def run_study(_: object, settings: Settings, command: str, *rest: object) -> Study:
        measured = Measurement((timing("convoy"), timing("onnxruntime")), {}, None, Rates(1e11, 1e10))
        return Study("2026", command, "a CPU", 2, settings, {}, (0.0, 0.0), {"net": measured}, {})

    monkeypatch.setattr("convoy.cli.bench.run_study", run_study)
    result = convoy_command("bench", "net")
    assert result.code == code
    assert result.error_lines == [f"error: {wrong} is wrong on net by 1.0e+00, past 0.0001"]


@pytest.mark.slow
def test_bench_writes_its_results(convoy_command: Command, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    result = convoy_command(
        "bench", model, "--against", "onnxruntime", "--rounds", "1", "--startup", "--results", folder
    )
    assert result.code == 0, result.err
    (data,) = folder.glob("bench-*.json")
    (timings,) = (m["timings"] for m in json.loads(data.read_text())["results"].values())
    assert [timing["engine"] for timing in timings] == ["convoy", "onnxruntime"]
    written = data.with_suffix(".md").read_text()
    assert "ONNX Runtime" in written
    assert "Loading, first run, peak memory" in written
    assert "peak" in result.out  # a narrow terminal breaks longer headings
    assert data.with_suffix(".svg").exists() or "pip install matplotlib" in result.err


@pytest.mark.slow
def test_profile_prints_steps_and_writes_a_trace(
    convoy_command: Command, model: Path, tmp_path: Path
) -> None:
    result = convoy_command("profile", model, "--seconds", "0", "--trace", tmp_path / "trace.json")
    assert result.code == 0, result.err
    assert "accounted for" in result.out
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


@pytest.mark.slow
def test_profile_as_json_is_data(convoy_command: Command, model: Path) -> None:
    found = json.loads(convoy_command("profile", model, "--seconds", "0", "--json").out)
    assert {"parts", "roof", "accounted"} <= set(found)
    assert any("conv2d conv0" in part["nodes"] for part in found["parts"])


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("bench", "--html"), ("profile", "--trace"), ("profile", "--html"), ("explain", "--html"),
        ("explain", "--onnx"), ("bisect", "-o"),
    ],
)  # fmt: skip
def test_where_a_command_cannot_write_is_said_before_its_work(
    command: str, option: str, convoy_command: Command, model: Path, tmp_path: Path
) -> None:
    result = convoy_command(command, model, option, tmp_path / "no" / "file")
    assert result.code == 1
    assert len(result.error_lines) == 1
    assert f"write: {option} {tmp_path}" in result.err
    assert "importing" not in result.err
    assert "round" not in result.err


def test_trying_whether_a_file_can_be_written_leaves_nothing_changed(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("before")
    (tmp_path / "link").symlink_to("not there yet")
    for name in ("page", "link", "new"):
        expect_file(tmp_path / name, "--html")
    assert (tmp_path / "page").read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"page", "link"}
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ModelError, match="write: --html"):
        expect_file(tmp_path / "round", "--html")


@pytest.mark.parametrize("command", ["compile", "run", "check", "explain", "bench", "profile", "bisect"])
def test_help_teaches_by_example(convoy_command: Command, command: str) -> None:
    result = convoy_command(command, "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    assert f"convoy {command} " in result.out


@pytest.mark.parametrize(
    "shape",
    [
        "x",
        "x=",
        "x=1xxb",
        "=1x2",
        "x=batchx3",
        "x=1x{}",
        "x={1,0}x3",
        "x={1x3",
        "x=1,3}",
        "x=1x" + "9" * 5000,
        "x={1," + "0" * 5000 + "1}",
    ],
)
def test_a_shape_in_another_form_is_a_usage_error(convoy_command: Command, model: Path, shape: str) -> None:
    result = convoy_command("explain", model, "--shape", shape)
    assert result.code == 2
    assert "expected NAME=SIZExSIZE" in result.err


@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_cache_that_holds_nothing_yet(convoy_command: Command, tmp_path: Path, command: str) -> None:
    body = (
        "(float[1,p] before, float[1,2] x) => (float[1,t] after) { after = Concat <axis = 1> (before, x) }"
    )
    model = tmp_path / "decoder.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {body}'), model)
    result = convoy_command(command, model, "--shape", "before=1x0")
    assert result.code == 0, result.err
    assert ("1×2" if command == "check" else "concat") in result.out


def test_a_size_of_the_model_is_not_0(convoy_command: Command, model: Path) -> None:
    result = convoy_command("explain", model, "--shape", "x=0x3x8x8")
    assert result.code == 1
    assert "expected a shape that fits" in result.err


def test_two_shapes_of_an_input_are_a_usage_error(convoy_command: Command, model: Path) -> None:
    result = convoy_command("explain", model, "--shape", "x=1x2", "--shape", "x=1x3")
    assert result.code == 2
    assert "expected one shape of x, got two" in result.err


def test_an_accuracy_that_does_not_exist_is_a_usage_error(convoy_command: Command, model: Path) -> None:
    result = convoy_command("explain", model, "--accuracy", "low")
    assert result.code == 2
    assert "'low' is not one of 'direct', 'fast', 'fastest'" in result.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accuracy", "algorithm"),
    [("direct", "direct"), ("fast", "winograd F(4x4, 3x3)"), ("fastest", "winograd F(6x6, 3x3)")],
)
def test_accuracy_chooses_among_algorithms(
    convoy_command: Command, tmp_path: Path, accuracy: str, algorithm: str
) -> None:
    large = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        large (float[1, 32, 192, 192] x) => (float[1, 32, 192, 192] y) <float[32, 32, 3, 3] w>
        { y = Conv <pads = [1, 1, 1, 1]> (x, w) }
    """)
    weight = np.random.default_rng(0).standard_normal((32, 32, 3, 3), dtype=np.float32)
    large.graph.ClearField("initializer")
    large.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(large, tmp_path / "large.onnx")
    result = convoy_command(
        "explain", tmp_path / "large.onnx", "--accuracy", accuracy, "--target", "skylake-avx512", "--json"
    )
    assert result.code == 0, result.err
    choices = [decision["choice"] for decision in json.loads(result.out)["decisions"]]
    assert algorithm in choices
    checked = convoy_command(
        "check",
        tmp_path / "large.onnx",
        "--accuracy",
        accuracy,
        "--target",
        "haswell",
        "--bound",
        "0",
        "--layers",
    )
    assert checked.code == 1  # a sum in another order is off by something
    assert ("winograd" in checked.out) == (accuracy != "direct")


def test_an_unknown_option_is_exit_code_2(convoy_command: Command, model: Path) -> None:
    assert convoy_command("explain", model, "--nonsense").code == 2


def test_a_command_that_is_none_names_the_one_that_may_be_meant(convoy_command: Command) -> None:
    meant, unknown = convoy_command("benchmark"), convoy_command("quantise")
    assert (meant.code, unknown.code) == (2, 2)
    assert "No such command 'benchmark'. Did you mean 'bench'?" in meant.err
    assert "Did you mean" not in unknown.err


def test_the_list_of_commands_has_whole_sentences(convoy_command: Command) -> None:
    listed = convoy_command("--help").out.partition("Commands:")[2].splitlines()
    assert len(listed) > len(COMMANDS)
    assert all(row.endswith(".") for row in listed if row)


@pytest.mark.parametrize("bound", ["-1", "nan", "inf"])
def test_check_wants_a_bound_that_means_something(convoy_command: Command, model: Path, bound: str) -> None:
    result = convoy_command("check", model, "--bound", bound)
    assert result.code == 2
    assert "expected --bound of at least 0" in result.err


def test_bench_says_at_once_where_it_cannot_write(
    convoy_command: Command, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = convoy_command("bench", model, "--results", tmp_path / "file")
    assert result.code == 1
    assert "expected a folder to write into, got" in "".join(result.error_lines)
    assert "round" not in result.err


def test_check_takes_a_folder_whose_name_is_no_utf8(convoy_command: Command, tmp_path: Path) -> None:
    # ONNX Runtime was told the folder as a text: a traceback
    folder = tmp_path / os.fsdecode(b"n\xff")
    folder.mkdir()
    (folder / "m.onnx").write_bytes(tiny_model().SerializeToString())
    checked = convoy_command("check", folder / "m.onnx")
    assert (checked.code, checked.error_lines) == (0, [])


def test_a_file_without_an_end_is_not_read(convoy_command: Command) -> None:
    explained = convoy_command("explain", "/dev/zero")
    assert explained.code == 1
    problem = "expected a readable ONNX file, got a device, which may have no end; check the file"
    assert explained.error_lines == [f"error: import: /dev/zero: {problem}"]


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["0", "9" * 20])
def test_a_screen_of_no_width_there_is_has_the_usual_one(columns: str, model: Path) -> None:
    explained = subprocess.run(
        [sys.executable, "-m", "convoy", "explain", model],
        env={**os.environ, "COLUMNS": columns},
        capture_output=True,
        text=True,
    )
    assert explained.returncode == 0, explained.stderr
    assert max(map(len, explained.stdout.splitlines())) < 1000
