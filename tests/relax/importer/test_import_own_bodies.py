"""Ops that neither TVM's frontend nor a definition of ONNX's has, written out by Convoy.

Against ONNX Runtime, or NumPy where it lacks them.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load
from convoy.report.decision import Report


def make(text: str, opset: int = 20) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> {text}')


def draw(value: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    """An input of a model: numbers around 0, bytes of any value, indices 1 to 3."""
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    low, high = (1, 4) if dtype.itemsize > 1 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return rng.integers(low, high, shape, dtype)


SCALES = """float as = {0.02}, uint8 az = {3}, float bs = {0.1}, int8 bz = {-2},
    float ys = {0.5}, uint8 yz = {100}"""
ORT = {
    "DFT": "(float[2,7,1] x) => (float[2,7,2] y) <int64 a = {1}> { y = DFT (x, , a) }",
    "DFT, onesided, longer": """(float[2,6,1] x) => (float[2,5,2] y) <int64 n = {8}, int64 a = {1}> {
        y = DFT <onesided = 1> (x, n, a) }""",
    "DFT back": """(float[2,5,3,2] x) => (float[2,5,3,2] y) <int64 a = {-3}> {
        y = DFT <inverse = 1> (x, , a) }""",
    "DFT back of half a spectrum": """(float[2,5,3,2] x) => (float[2,8,3,1] y) <int64 a = {1}> {
        y = DFT <inverse = 1, onesided = 1> (x, , a) }""",
    "DFT back of half a spectrum, an odd length": """(float[2,5,2] x) => (float[2,9,1] y) <int64 n = {9}> {
        y = DFT <inverse = 1, onesided = 1> (x, n) }""",
    "DFT back of a part of it": """(float[2,5,2] x) => (float[2,6,1] y) <int64 n = {6}> {
        y = DFT <inverse = 1, onesided = 1> (x, n) }""",
    "Equal of truths": """(int64[6] x, int64[6] e) => (bool[6] y) {
        two = Constant <value_int = 2> () a = Less (x, two) b = Less (e, two) y = Equal (a, b) }""",
    "STFT": """(float[2,40,1] x, float[8] w) => (float[2,F,5,2] y) <int64 s = {3}> {
        y = STFT (x, s, w) }""",
    "STFT, all frequencies of no window": """(float[2,40,1] x) => (float[2,F,7,2] y)
        <int64 s = {5}, int64 n = {7}> { y = STFT <onesided = 0> (x, s, , n) }""",
    "LpNormalization 1": "(float[3,4] x) => (float[3,4] y) { y = LpNormalization <axis = 0, p = 1> (x) }",
    "LpNormalization 2": "(float[3,4] x) => (float[3,4] y) { y = LpNormalization (x) }",
    "ReverseSequence": "(float[5,4,2] x, int64[4] n) => (float[5,4,2] y) { y = ReverseSequence (x, n) }",
    "ReverseSequence of batches first": """(float[4,5] x, int64[4] n) => (float[4,5] y) {
        y = ReverseSequence <batch_axis = 0, time_axis = 1> (x, n) }""",
    "ConvInteger": """(uint8[1,3,8,8] x, int8[4,3,3,3] w) => (int32[1,4,6,6] y) <uint8 z = {7}> {
        y = ConvInteger (x, w, z) }""",
    "QLinearMatMul": f"""(uint8[2,4,6] a, int8[6,5] b) => (uint8[2,4,5] y) <{SCALES}> {{
        y = QLinearMatMul (a, as, az, b, bs, bz, ys, yz) }}""",
    "CumSum": """(float[3,4,5] x, int64 a) => (float[3,4,5] y) {
        y = CumSum <reverse = 1, exclusive = 1> (x, a) }""",
    "Pow of whole numbers": "(int64[6] x, int64[6] e) => (int64[6] y) { y = Pow (x, e) }",
    "Pow of two types": "(float[6] x, int64[6] e) => (float[6] y) { y = Pow (x, e) }",
    **{
        f"Reduce{kind}, {keep}": f"""(float[2,3,4,5] x, int64[2] a) => (float{shape} y) {{
            m = Abs (x)
            y = Reduce{kind} <keepdims = {keep}> (m, a)
        }}"""
        for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
        for keep, shape in ((0, "[a,b]"), (1, "[a,b,c,d]"))
        if not keep or kind in ("Max", "LogSumExp")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ORT)
def test_an_op_gives_what_onnx_runtime_gives(name: str, run_tvm, run_onnx, rng) -> None:
    model = make(f"network {ORT[name]}")
    arrays = [draw(value, rng) for value in model.graph.input]
    if "Reduce" in name:
        arrays[1] = np.array([-1, 1], "int64")
    (found,) = run_tvm(load(model), *arrays)
    (wanted,) = run_onnx(model, *arrays)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("fed", [True, False])
def test_cumulative_product(axis: int, fed: bool, run_tvm, rng) -> None:
    given = (", int64 a", "") if fed else ("", f"<int64 a = {{{axis}}}>")
    graph = f"(float[3,4] x{given[0]}) => (float[3,4] y) {given[1]}"
    text = f"network {graph} {{ y = CumProd <reverse = 1> (x, a) }}"
    x = rng.standard_normal((3, 4)).astype("float32")
    (found,) = run_tvm(load(make(text, 26)), x, *([np.array(axis)] if fed else []))
    np.testing.assert_allclose(found, np.flip(np.flip(x, axis).cumprod(axis), axis), rtol=1e-5)


def test_bits_as_another_type(run_tvm, rng) -> None:
    x = rng.standard_normal((3, 4)).astype("float32")
    (found,) = run_tvm(
        load(make("network (float[3,4] x) => (int32[3,4] y) { y = BitCast <to = 6> (x) }", 26)), x
    )
    np.testing.assert_array_equal(found, x.view("int32"))


def test_bits_of_truths(run_tvm) -> None:
    """LLVM ended in an error: it has a bool in one bit."""
    x = np.array([True, False, True])
    made = [f"{a}[3] x) => ({b}[3] y) {{ y = BitCast <to = {to}> (x) }}" for a, b, to in _TRUTHS]
    (numbers,) = run_tvm(load(make(f"network ({made[0]}", 26)), x)
    np.testing.assert_array_equal(numbers, x.view("uint8"))
    (truths,) = run_tvm(load(make(f"network ({made[1]}", 26)), numbers)
    np.testing.assert_array_equal(truths, x)


_TRUTHS = (("bool", "uint8", 2), ("uint8", "bool", 9))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_of_no_truths_none_is_true_and_all_are(op: str, late: bool) -> None:
    axes = "int64[1] a" if late else ""
    known = "" if late else "<int64[1] a = {1}>"
    text = f"network (bool[2,0] x, {axes}) => (bool[M,N] y) {known} {{ y = {op} (x, a) }}"
    x = np.zeros((2, 0), bool)
    executable = convoy.compile(make(text.replace(", )", ")"), 20), threads=1)
    (found,) = convoy.load(executable).run([x, np.array([1])][: 1 + late])
    np.testing.assert_array_equal(found, np.full((2, 1), op == "ReduceMin"))


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_takes_new_rows_from_each_index_on(mode: str, run_tvm, rng) -> None:
    model = make(
        f"""network (float[2,3,6,4] past, float[2,3,2,4] new, int64[2] at) => (float[2,3,6,4] y) {{
            y = TensorScatter <mode = "{mode}"> (past, new, at) }}""",
        24,
    )
    at = np.array([1, 5 if mode == "circular" else 4])
    past, new = (rng.standard_normal((2, 3, n, 4)).astype("float32") for n in (6, 2))
    wanted = past.copy()
    for image, start in enumerate(at):
        for row in range(2):
            wanted[image, :, (start + row) % 6] = new[image, :, row]
    np.testing.assert_array_equal(run_tvm(load(model), past, new, at)[0], wanted)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_an_extreme_of_infinities_is_infinite(op: str, run_tvm) -> None:
    model = make(f"network (float[2,3] x, int64[1] a) => (float[M,N] y) {{ y = {op} (x, a) }}")
    infinity = np.float32(np.inf if op == "ReduceMin" else -np.inf)
    x = np.array([[infinity] * 3, [infinity, 1, 2]], "float32")
    (found,) = run_tvm(load(model), x, np.array([1]))
    np.testing.assert_array_equal(found, [[infinity], [1 if op == "ReduceMin" else 2]])


@pytest.mark.slow
@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_are_of_a_length_that_a_call_says(op: str, run_tvm, run_onnx) -> None:
    for periodic in (0, 1):
        model = make(f"network (int64 n) => (float[K] y) {{ y = {op} <periodic = {periodic}> (n) }}")
        module = load(model)
        for length in (1, 7, 400):
            (wanted,) = run_onnx(model, np.array(length))
            np.testing.assert_allclose(run_tvm(module, np.array(length))[0], wanted, atol=1e-6)
    # and what a node leaves unsaid is its default
    unsaid = load(make(f"network (int64 n) => (float[K] y) {{ y = {op} (n) }}"))
    np.testing.assert_array_equal(run_tvm(unsaid, np.array(7))[0], run_tvm(module, np.array(7))[0])


def test_a_transform_of_any_length_is_no_way_to_fill_the_memory() -> None:
    model = make(
        "network (float[1,900000,1] x) => (float[1,900000,2] y) <int64 a = {1}> { y = DFT (x, , a) }"
    )
    with pytest.raises(ModelError, match="expected ops that TVM's ONNX frontend knows, got DFT"):
        load(model)


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("axes", [[1, 3], [-4, 1], [1, -2], [2, -1]])
def test_axes_that_do_not_exist_or_are_the_same_end_the_call(kept: int, axes: list[int], run_tvm) -> None:
    model = make(
        f"g (float[2,3,4] x, int64[2] a) => (float[M] y) {{ y = ReduceSum <keepdims = {kept}> (x, a) }}"
    )
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    same = axes[0] - axes[1] == 3
    if max(axes) > 2 or min(axes) < -3 or (same and not kept):
        with pytest.raises(Exception, match="match_cast"):
            run_tvm(load(model), x, np.array(axes))
    else:
        wanted = x.sum(tuple({axis % 3 for axis in axes}), keepdims=bool(kept))
        np.testing.assert_array_equal(run_tvm(load(model), x, np.array(axes))[0], wanted)


MEANINGLESS = {
    "ConvInteger of a pad of text": """(uint8[1,3,8,8] x, int8[4,3,3,3] w) => (int32[1,4,6,6] y) {
        y = ConvInteger <auto_pad = "\\""> (x, w) }""",
    "ConvInteger of no pixels": "(uint8[2] x, int8[4] w) => (int32[2] y) { y = ConvInteger (x, w) }",
    "DFT of a number": "(float x) => (float[2] y) { y = DFT (x) }",
    "DFT along no axis": "(float[2,5,2] x) => (float[2,5,2] y) <int64 a = {9}> { y = DFT (x, , a) }",
    "DFT along the last": "(float[2,5,2] x) => (float[2,5,2] y) <int64 a = {2}> { y = DFT (x, , a) }",
    "DFT along two axes": "(float[2,5,2] x) => (float[2,5,2] y) <int64[2] a = {1,1}> { y = DFT (x, , a) }",
    "DFT of two lengths": "(float[2,5,2] x) => (float[2,5,2] y) <int64[2] n = {1,1}> { y = DFT (x, n) }",
    "DFT of less than nothing": "(float[2,5,2] x) => (float[2,5,2] y) <int64 n = {-1}> { y = DFT (x, n) }",
    "DFT of triples": "(float[2,5,3] x) => (float[2,5,2] y) { y = DFT (x) }",
    "STFT of complex numbers": """(float[2,40,2] x, float[8] w) => (float[2,F,8,2] y) <int64 s = {3}> {
        y = STFT (x, s, w) }""",
    "STFT in steps of nothing": """(float[2,40,1] x, float[8] w) => (float[2,F,5,2] y) <int64 s = {0}> {
        y = STFT (x, s, w) }""",
    "STFT of a frame without end": """(float[2,40,1] x) => (float[2,F,5,2] y)
        <int64 s = {1}, int64 n = {900000}> { y = STFT (x, s, , n) }""",
    "STFT of another window": """(float[2,40,1] x, float[8] w) => (float[2,F,5,2] y)
        <int64 s = {1}, int64 n = {9}> { y = STFT (x, s, w, n) }""",
    "LpNormalization 3": "(float[3,4] x) => (float[3,4] y) { y = LpNormalization <p = 3> (x) }",
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_numbers_that_mean_nothing_are_refused_in_a_line(name: str) -> None:
    with pytest.raises(
        ModelError, match=f"expected ops that TVM's ONNX frontend knows, got {name.split()[0]}"
    ):
        load(make(f"network {MEANINGLESS[name]}"))


@pytest.mark.parametrize(("time", "batch"), [(5, 0), (1, 1)])
def test_sequences_are_reversed_along_the_first_axes(time: int, batch: int) -> None:
    axes = f"<time_axis = {time}, batch_axis = {batch}>"
    model = make(
        f"network (float[5,4] x, int64[4] n) => (float[5,4] y) {{ y = ReverseSequence {axes} (x, n) }}"
    )
    with pytest.raises(ModelError, match=f"time and batch on axes 0 and 1, got {time} and {batch}"):
        load(model)


def test_sequences_of_open_sizes_are_reversed(run_tvm, run_onnx, rng) -> None:
    model = make("network (float[T,N,2] x, int64[N] n) => (float[T,N,2] y) { y = ReverseSequence (x, n) }")
    for steps, lengths in ((5, [5, 1, 3]), (2, [2])):
        given = [rng.standard_normal((steps, len(lengths), 2)).astype("float32"), np.array(lengths)]
        np.testing.assert_array_equal(run_tvm(load(model), *given)[0], run_onnx(model, *given)[0])


SPECTRA = {
    "whole": "(float[N,T,1] x) => (float[N,M,2] y) { y = DFT (x) }",
    "half": "(float[N,T,1] x) => (float[N,M,2] y) { y = DFT <onesided = 1> (x) }",
    "back": "(float[N,T,2] x) => (float[N,M,2] y) { y = DFT <inverse = 1> (x) }",
    "back of half": "(float[N,T,2] x) => (float[N,M,1] y) { y = DFT <inverse = 1, onesided = 1> (x) }",
}


@pytest.mark.parametrize("name", SPECTRA)
def test_a_spectrum_along_an_open_axis_is_a_product(name: str, run_tvm, run_onnx, rng) -> None:
    model = make(f"network {SPECTRA[name]}")
    module = load(model)
    for shape in ((1, 5), (2, 8)):
        x = rng.standard_normal((*shape, 2 if "back" in name else 1)).astype("float32")
        wanted = run_onnx(model, x)[0]
        np.testing.assert_allclose(run_tvm(module, x)[0], wanted, atol=1e-5)


def test_half_a_spectrum_with_zeros_behind_it(run_tvm, rng) -> None:
    # ONNX Runtime takes the last frequency that it is given for half the length's
    text = """(float[2,5,2] x) => (float[2,12,1] y) <int64 n = {12}> {
        y = DFT <inverse = 1, onesided = 1> (x, n) }"""
    x = rng.standard_normal((2, 5, 2)).astype("float32")
    wanted = np.fft.irfft(x[..., 0] + 1j * x[..., 1], 12)
    np.testing.assert_allclose(run_tvm(load(make(f"network {text}")), x)[0][..., 0], wanted, atol=1e-6)


LENGTHS = {
    "its own": """(float[N,T,C] x, float[L] z) => (float[N,M,2] y) {
        n = Shape <start = 1, end = 2> (x) {dft} }""",
    "a number": "(float[N,T,C] x, float[L] z) => (float[N,8,2] y) <int64[1] n = {8}> { {dft} }",
    "of another": "(float[N,T,C] x, float[L] z) => (float[N,M,2] y) { n = Shape (z) {dft} }",
    "by data": """(float[N,T,C] x, float[L] z) => (float[N,M,2] y) {
        total = ReduceSum (z) n = Cast <to = 7> (total) {dft} }""",
}


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("kind", ["", "<onesided = 1>", "<inverse = 1>", "<inverse = 1, onesided = 1>"])
def test_a_length_for_an_open_axis_cuts_or_goes_on_with_zeros(name: str, kind: str, run_tvm, rng) -> None:
    # as PyTorch's exporter writes rfft2 and irfft2 of images of any size
    channels = 2 if "inverse" in kind else 1
    dft = f"m = Squeeze (n) y = DFT {kind} (x, m)"
    module = load(make(f"network {LENGTHS[name].replace('C]', f'{channels}]').replace('{dft}', dft)}"))
    numpy_name = {"": "fft", "<onesided = 1>": "rfft", "<inverse = 1>": "ifft"}.get(kind, "irfft")
    for size, other in ((5, 8), (11, 8), (8, 8), (1, 8), (5, 5)):
        x = rng.standard_normal((2, size, channels)).astype("float32")
        length = {"its own": size, "a number": 8}.get(name, other)
        signal = x[..., 0] + 1j * x[..., 1] if channels == 2 else x[..., 0]
        wanted = getattr(np.fft, numpy_name)(signal, length)
        found = run_tvm(module, x, np.ones(other, np.float32))[0]
        np.testing.assert_allclose(found[..., 0], wanted.real, atol=1e-5)
        if found.shape[-1] == 2:
            np.testing.assert_allclose(found[..., 1], wanted.imag, atol=1e-5)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("space", [(4, 7), (2, 3, 5)])
def test_a_grid_of_open_sizes(corners: int, space: tuple[int, ...], run_tvm, run_onnx, rng) -> None:
    rank = len(space)
    names = ["D", "H", "W"][3 - rank :]
    model = make(
        f"""network (float[N,{rank},{rank + 1}] t, float[{",".join(["N", "3", *names])}] x) =>
            (float[{",".join(["N", *names, str(rank)])}] y) {{
            s = Shape (x) y = AffineGrid <align_corners = {corners}> (t, s) }}"""
    )
    module = load(model)
    for images, sizes in ((1, space), (2, space[::-1])):
        theta = rng.standard_normal((images, rank, rank + 1)).astype("float32")
        given = theta, np.zeros((images, 3, *sizes), "float32")
        np.testing.assert_allclose(run_tvm(module, *given)[0], run_onnx(model, *given)[0], atol=1e-5)


def test_a_spectrum_of_open_sizes_is_a_product(run_tvm, run_onnx, rng) -> None:
    model = make("""network (float[N,T,16,1] x) => (float[N,T,17,2] y) <int64 n = {32}, int64 a = {2}> {
        y = DFT <onesided = 1> (x, n, a) }""")
    for shape in ((1, 3, 16, 1), (2, 5, 16, 1)):
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_allclose(run_tvm(load(model), x)[0], run_onnx(model, x)[0], atol=1e-5)


@pytest.mark.parametrize("domain", ['a"b', 'a": 1, "b', "*/\n"])
def test_a_domain_may_have_any_name(domain: str, run_tvm, run_onnx, rng) -> None:
    model = make(f"network {ORT['LpNormalization 1']}")
    x = rng.standard_normal((3, 4)).astype("float32")
    (wanted,) = run_onnx(model, x)
    model.opset_import.add(domain=domain, version=1)
    np.testing.assert_allclose(run_tvm(load(model), x)[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("length", [6, -1])
def test_a_sequence_is_no_longer_than_the_tensor(length: int, run_onnx, rng) -> None:
    # it was reversed as far as it goes, where ONNX Runtime ends the call
    model = make(f"network {ORT['ReverseSequence']}")
    x = rng.standard_normal((5, 4, 2)).astype("float32")
    runner, right = convoy.load(convoy.compile(model)), np.array([5, 0, 3, 1])
    np.testing.assert_array_equal(runner.run([x, right])[0], run_onnx(model, x, right)[0])
    with pytest.raises(ModelError, match="expected indices within the sizes they count"):
        runner.run([x, np.array([length, 1, 1, 1])])
    known = make(f"""network (float[5,4] x) => (float[5,4] y) <int64[4] n = {{{length},1,1,1}}> {{
        y = ReverseSequence (x, n) }}""")
    with pytest.raises(ModelError, match="expected lengths from 0 to the 5 steps there are"):
        load(known)


@pytest.mark.slow
def test_a_spectrum_of_any_length_is_a_convolution(run_onnx, rng) -> None:
    model = make("""network (float[N,L,1] x) => (float[N,F,257,2] y) <int64 s = {160}> {
        size = Constant <value_int = 512> ()
        w = HannWindow (size)
        y = STFT (x, s, w) }""")
    report = Report()
    machine = relax.VirtualMachine(convoy.compile(model, threads=1, report=report), tvm.cpu())
    assert any("conv2d" in region.ops for region in report.regions)
    for shape in ((1, 512, 1), (2, 1999, 1)):
        x = rng.standard_normal(shape).astype("float32")
        got, wanted = machine["main"](tvm.runtime.tensor(x)).numpy(), run_onnx(model, x)[0]
        np.testing.assert_allclose(got, wanted, atol=1e-5 * np.abs(wanted).max())
