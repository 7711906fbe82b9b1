"""Both TVMs' entries as plain C: every wrong argument is an error that says what to do, never a crash."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import cffi
import numpy as np
import pytest
from tiny_region import TinyRegion, make_region

from convoy import target
from convoy.deploy import abi, classic
from convoy.graph import sizes
from convoy.graph.dtypes import ARRAYS
from convoy.graph.graph import OpenAxis
from convoy.graph.ops import Tensor
from convoy.target import Target
from convoy.text import c_string
from convoy.toolchain import compiler
from convoy.toolchain.weights import embed_weights

# Stands in for libtvm_ffi and libtvm_runtime: keeps the last error.
RAISE = """
#include <stdio.h>
char raised_kind[64], raised_text[2048];
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
  snprintf(raised_kind, sizeof raised_kind, "%s", kind);
  snprintf(raised_text, sizeof raised_text, "%s", message);
}
void TVMFFIErrorMoveFromRaised(void **error) { *error = 0; }
void TVMFFIErrorSetRaised(void *error) { (void)error; }
int TVMFFIObjectDecRef(void *object) { return object != 0; }
void TVMAPISetLastError(const char *message) { TVMFFIErrorSetRaisedFromCStr("", message); }
"""

HOST = target.host()

DECLARATIONS = """
typedef struct { int32_t type_index; uint32_t padding; void *pointer; } any;
typedef struct {
  void *data; int32_t device_type, device_id; int32_t ndim;
  uint8_t dtype_code, dtype_bits; uint16_t dtype_lanes;
  int64_t *shape; int64_t *strides; uint64_t byte_offset;
} tensor;
DECLARATION
extern char raised_kind[64], raised_text[2048];
"""


class Entry:
    """A region called as TVM calls it, with arguments TVM itself would not let through."""

    name: str
    """What messages call the region."""
    has_kinds: bool
    """Do errors have one?"""
    units: tuple[str, ...]
    """Units of the runtime."""
    declaration: str

    def __init__(self, region, machine=HOST, features="__builtin_cpu_supports(feature)"):
        self.symbol = region.symbol
        runtime = {**compiler.kernel_sources(region.sources), **compiler.runtime_sources(*self.units)}
        runtime["vectors.c"] = runtime["vectors.c"].replace("__builtin_cpu_supports", "supports")
        runtime["vectors.c"] = f"#define supports(feature) {features}\n" + runtime["vectors.c"]
        sources = [*region.sources, self.emit(region), *runtime.values(), RAISE]
        weights = embed_weights(region.symbol, region.weights, machine)
        library = compiler.link_shared([*compiler.compile_objects(sources, machine), weights])
        self.ffi = cffi.FFI()
        self.ffi.cdef(DECLARATIONS.replace("DECLARATION", self.declaration))
        self.library = self.ffi.dlopen(str(library))
        self.alive: list[object] = []

    def tensor(self, array, **changes):
        """A DLTensor of ``array``; ``changes`` spoil fields of it."""
        shape = self.ffi.new("int64_t[]", [*array.shape, 0])
        tensor = self.ffi.new(
            "tensor *",
            {
                "data": self.ffi.cast("void *", array.ctypes.data),
                "device_type": 1,
                "ndim": array.ndim,
                "dtype_code": 2,
                "dtype_bits": 32,
                "dtype_lanes": 1,
                "shape": shape,
            },
        )
        for field, value in changes.items():
            if isinstance(value, list):
                value = self.ffi.new("int64_t[]", value)
                self.alive.append(value)
            setattr(tensor, field, value)
        self.alive += [shape, tensor, array]
        return tensor

    def __call__(self, *tensors):
        """None, or the kind and text of the error."""
        if self.call(tensors) == 0:
            return None
        read = self.ffi.string
        return read(self.library.raised_kind).decode(), read(self.library.raised_text).decode()


class ModernEntry(Entry):
    name = "convoy_entry"
    has_kinds = True
    units = compiler.ENTRY_UNITS
    declaration = "int __tvm_ffi_convoy_entry(void *self, const any *args, int32_t count, any *result);"

    def emit(self, region):
        open_axes = region.open_axes
        return abi.emit_entry(region.symbol, region.inputs, region.outputs, region.batch, open_axes)

    def call(self, tensors):
        args = self.ffi.new("any[]", [(7, 0, self.ffi.cast("void *", t)) for t in tensors])
        function = getattr(self.library, "__tvm_ffi_convoy_entry")  # as an attribute, mangled
        return function(self.ffi.NULL, args, len(tensors), self.ffi.new("any *"))


class ClassicEntry(Entry):
    name = "tvmgen_main_0 (convoy_entry)"
    has_kinds = False
    units = compiler.CLASSIC_ENTRY_UNITS
    declaration = (
        "int tvmgen_main_0(void **args, int *kinds, int count, void *result, int *kind, void *self);"
    )

    def emit(self, region):
        entry = classic.emit_entry(region.symbol, region.inputs, region.outputs, region.batch)
        arguments = len(region.inputs) + len(region.outputs)
        return entry + classic.emit_packed_call("tvmgen_main_0", region.symbol, arguments)

    def call(self, tensors):
        args = self.ffi.new("void *[4]", [self.ffi.cast("void *", t) for t in tensors])
        kinds, kind, result = self.ffi.new("int[4]"), self.ffi.new("int *"), self.ffi.new("void **")
        return self.library.tvmgen_main_0(args, kinds, len(tensors), result, kind, self.ffi.NULL)


@pytest.fixture(scope="module")
def region():
    return make_region("convoy_entry", batch=None)


@pytest.fixture(scope="module", params=[ModernEntry, ClassicEntry], ids=["modern", "classic"])
def entry(request, region):
    return request.param(region)


@pytest.fixture
def x(region):
    return np.random.default_rng(3).standard_normal((2, 3, 8, 8)).astype(np.float32)


def test_good_arguments(entry, region, x):
    y = np.zeros_like(x)
    assert entry(entry.tensor(x), entry.tensor(y)) is None
    np.testing.assert_array_equal(y, region.expected(x))


def test_compact_strides_and_byte_offset(entry, region, x):
    y = np.zeros((2, 3, 8, 8), np.float32)
    shifted = np.concatenate([np.zeros(3, np.float32), x.ravel()])
    # a stride of an axis of size 1 means nothing, whatever it is
    given = entry.tensor(x, data=entry.ffi.cast("void *", shifted.ctypes.data), byte_offset=12)
    assert entry(given, entry.tensor(y, strides=[192, 64, 8, 1])) is None
    np.testing.assert_array_equal(y, region.expected(x))


def test_no_images(entry):
    nothing = np.zeros((0, 3, 8, 8), np.float32)
    null = {"data": cffi.FFI().NULL}
    assert entry(entry.tensor(nothing, **null), entry.tensor(nothing, **null)) is None


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"dtype_bits": 16}, "TypeError", "got float16 [2, 3, 8, 8]; convert it to float32"),
        ({"dtype_code": 0}, "TypeError", "got int32 [2, 3, 8, 8]; convert it to float32"),
        ({"dtype_lanes": 4}, "TypeError", "got float32x4 [2, 3, 8, 8]; convert it to float32"),
        ({"dtype_code": 99}, "TypeError", "got (code 99) dtype32 [2, 3, 8, 8]"),
        ({"ndim": 3}, "ValueError", "got float32 [2, 3, 8]; pass a tensor of that shape"),
        ({"ndim": 0}, "ValueError", "got float32 []; pass a tensor of that shape"),
        ({"device_type": 2}, "ValueError", "got one on device type 2; copy it to the CPU"),
        ({"strides": [192, 1, 24, 3]}, "ValueError", "got strides [192, 1, 24, 3]; make it contiguous"),
        ({"byte_offset": 2}, "ValueError", "got a misaligned address; pass memory aligned to 4 bytes"),
        ({"data": cffi.FFI().NULL}, "ValueError", "got a null address"),
        ({"shape": cffi.FFI().NULL}, "ValueError", "got a null address for the 4 lengths of its shape"),
        ({"shape": cffi.FFI().NULL, "ndim": -1}, "ValueError", "got float32 []; pass a tensor of that"),
    ],
)
@pytest.mark.parametrize("index", [0, 1])
def test_wrong_argument(entry, x, changes, kind, text, index):
    good, bad = entry.tensor(np.zeros_like(x)), entry.tensor(x, **changes)
    found = entry(*([bad, good] if index == 0 else [good, bad]))
    name = ["argument 0 (data)", "output argument 1 (scaled)"][index]
    assert found is not None
    assert found[0] == (kind if entry.has_kinds else "")
    assert found[1].startswith(f"{entry.name}: {name}: expected float32 [N, 3, 8, 8], got ")
    assert text in found[1]


@pytest.mark.parametrize("index", [0, 1])
def test_no_tensor_where_one_belongs(entry, x, index):
    arguments = [entry.tensor(x), entry.tensor(np.zeros_like(x))]
    arguments[index] = entry.ffi.NULL
    text = entry(*arguments)[1]
    assert f"argument {index} (" in text
    assert "got a value that is no tensor" in text


def test_null_pointers_of_modern_tvm(region, x):
    entry = ModernEntry(region)
    call = getattr(entry.library, "__tvm_ffi_convoy_entry")  # as an attribute, mangled
    null = entry.ffi.NULL
    assert call(null, entry.ffi.new("any[2]", [(70, 0, null), (70, 0, null)]), 2, null) == -1
    assert b"argument 0 (data): " in entry.ffi.string(entry.library.raised_text)
    assert b"no tensor (TVM type index 70); pass a" in entry.ffi.string(entry.library.raised_text)
    assert call(null, null, 2, null) == -1
    assert b"outputs, got 0; pass" in entry.ffi.string(entry.library.raised_text)


@pytest.mark.parametrize("offset", [-1532, -4, 0, 4, 1532])
def test_an_output_that_overlaps_another_argument_is_refused(entry, x, offset):
    # of 1536 bytes
    memory = np.zeros(3 * x.size, np.float32)
    start = memory.ctypes.data + x.nbytes
    given, written = (
        (entry.tensor(x, data=entry.ffi.cast("void *", at))) for at in (start, start + offset)
    )
    kind, text = entry(given, written)
    assert kind == ("ValueError" if entry.has_kinds else "")
    assert text == (
        f"{entry.name}: output argument 1 (scaled): expected float32 [N, 3, 8, 8], got memory that "
        "argument 0 (data) has, too; give each output its own"
    )
    assert not memory.any()


@pytest.mark.parametrize("side", [-1, 1])
def test_an_output_beside_an_input_is_taken(entry, region, x, side):
    memory = np.zeros(3 * x.size, np.float32)
    start = memory.ctypes.data + x.nbytes
    memory[x.size : 2 * x.size] = x.ravel()
    given, written = (
        (entry.tensor(x, data=entry.ffi.cast("void *", at))) for at in (start, start + side * x.nbytes)
    )
    assert entry(given, written) is None
    found = memory.reshape(3, *x.shape)[1 + side]
    np.testing.assert_array_equal(found, region.expected(x))


def test_of_no_images_all_may_lie_at_one_place(entry):
    nothing = np.zeros((0, 3, 8, 8), np.float32)
    assert entry(entry.tensor(nothing), entry.tensor(nothing)) is None


def test_batches_must_agree(entry, x):
    kind, text = entry(entry.tensor(x), entry.tensor(np.zeros((3, 3, 8, 8), np.float32)))
    assert kind == ("ValueError" if entry.has_kinds else "")
    assert (
        "got float32 [3, 3, 8, 8] where earlier arguments have N = 2; give all arguments the same N" in text
    )


@dataclass(frozen=True)
class RegionOfStatus(TinyRegion):
    """Returns as its status what its input holds."""

    @property
    def sources(self) -> tuple[str, ...]:
        return (
            f"#include <stdint.h>\nint {self.symbol}(const float *const *inputs, float *const *outputs, "
            "int64_t images) { return (int)inputs[0][0]; }",
        )


@pytest.mark.parametrize("made", [ModernEntry, ClassicEntry])
def test_a_status_is_said_in_words(made):
    entry = made(RegionOfStatus("convoy_entry", np.zeros((1, 1), np.float32), batch=None))
    for status, kind, text in [
        (1, "MemoryError", "scratch memory: expected enough memory for one image, got none; free memory"),
        (2, "RuntimeError", "call: expected one from outside the regions of this library, got one from"),
        (9, "RuntimeError", "call: expected status 0, got 9; report it"),
    ]:
        x = np.full((1, 1), status, np.float32)
        found = entry(entry.tensor(x), entry.tensor(np.zeros_like(x)))
        assert found is not None
        assert found[0] == (kind if entry.has_kinds else "")
        assert found[1].startswith(f"{entry.name}: {text}")
    assert entry(entry.tensor(np.zeros_like(x)), entry.tensor(np.zeros_like(x))) is None


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_count(entry, x, count):
    kind, text = entry(*[entry.tensor(x)] * count)
    assert kind == ("ValueError" if entry.has_kinds else "")
    assert f"expected 1 inputs and 1 outputs, got {count}" in text


@pytest.mark.skipif(HOST.isa == "portable", reason="compiles a region for vectors this machine lacks")
@pytest.mark.parametrize("made", [ModernEntry, ClassicEntry])
def test_a_cpu_without_the_vectors(made, x):
    lacks = "AVX-512 (F, BW, DQ, VL)" if HOST.isa == "avx512" else "AVX2 and FMA"
    entry, y = made(make_region("convoy_entry", batch=None), features="0"), np.zeros_like(x)
    kind, text = entry(entry.tensor(x), entry.tensor(y))
    assert kind == ("RuntimeError" if entry.has_kinds else "")
    assert text.startswith(
        f"{entry.name}: CPU: expected one with {lacks}, for which the region was compiled"
    )
    assert "for a target whose mcpu names this CPU" in text
    assert not y.any()


@pytest.mark.slow
@pytest.mark.skipif(HOST.isa != "avx512", reason="compiles a region for vectors this machine lacks")
def test_a_cpu_with_some_of_the_vectors(x):
    avx2, has_avx2 = Target("avx2"), """(feature[3] == '2' || feature[0] == 'f')"""
    for machine, refused in ((HOST, True), (avx2, False), (Target("portable"), False)):
        region = make_region("convoy_entry", batch=None)
        entry, y = ModernEntry(region, machine, features=has_avx2), np.zeros_like(x)
        assert (entry(entry.tensor(x), entry.tensor(y)) is not None) == refused
        np.testing.assert_array_equal(y, 0 if refused else region.expected(x))


def test_huge_rank_does_not_overrun_the_message(entry, x):
    shape = entry.ffi.new("int64_t[]", [123456789] * 400)
    kind, text = entry(entry.tensor(x, ndim=400, shape=shape), entry.tensor(x))
    assert kind == ("ValueError" if entry.has_kinds else "")
    assert len(text) == 1023


BARE = {"dtype_code": 3, "dtype_bits": 64, "ndim": 0}
"""What classic TVM's ahead-of-time executor passes from function to function: an address alone."""


def test_an_address_alone_is_taken_where_it_comes_from_classic_tvm(x):
    region = make_region("convoy_entry", batch=2)
    for made in (ModernEntry, ClassicEntry):
        entry, y = made(region), np.zeros_like(x)
        problem = entry(entry.tensor(x, **BARE), entry.tensor(y, **BARE))
        if made is ClassicEntry:
            assert problem is None
            np.testing.assert_array_equal(y, region.expected(x))
            null = entry.tensor(x, **BARE, data=cffi.FFI().NULL)
            assert "got a null address" in entry(null, entry.tensor(y))[1]
        else:
            assert "expected float32 [2, 3, 8, 8], got (code 3) dtype64 []" in problem[1]


def test_an_address_alone_says_nothing_of_a_number_of_images(entry, x):
    _, text = entry(entry.tensor(x, **BARE), entry.tensor(x))
    assert "expected float32 [N, 3, 8, 8], got (code 3) dtype64 []" in text


def test_names_are_quoted():
    assert c_string('a"b\\c') == r'"a\042b\134c"'
    assert c_string("é") == r'"\303\251"'


def test_layout_of_the_abi_is_that_of_tvm(tmp_path: Path):
    # our own declarations against TVM's headers, field by field
    from tvm_ffi import libinfo

    pairs = {
        ("cv_tvm_any", "TVMFFIAny"): [
            ("type_index", "type_index"),
            ("integer", "v_int64"),
            ("pointer", "v_ptr"),
        ],
        ("cv_tvm_object", "TVMFFIObject"): [("type_index", "type_index"), ("deleter", "deleter")],
        ("cv_dltensor", "DLTensor"): [
            ("data", "data"),
            ("device_type", "device.device_type"),
            ("device_id", "device.device_id"),
            ("ndim", "ndim"),
            ("dtype_code", "dtype.code"),
            ("dtype_bits", "dtype.bits"),
            ("dtype_lanes", "dtype.lanes"),
            ("shape", "shape"),
            ("strides", "strides"),
            ("byte_offset", "byte_offset"),
        ],
    }
    checks = [f"sizeof({ours}) == sizeof({theirs})" for ours, theirs in pairs]
    checks += [
        f"offsetof({ours}, {a}) == offsetof({theirs}, {b})"
        for (ours, theirs), fields in pairs.items()
        for a, b in fields
    ]
    constants = {
        "CV_TVM_NONE": "kTVMFFINone",
        "CV_TVM_INT": "kTVMFFIInt",
        "CV_TVM_DLTENSOR": "kTVMFFIDLTensorPtr",
        "CV_TVM_RAW_STRING": "kTVMFFIRawStr",
        "CV_TVM_TENSOR": "kTVMFFITensor",
        "CV_DL_CPU": "kDLCPU",
        "CV_DL_FLOAT": "kDLFloat",
        "CV_DL_INT": "kDLInt",
        "CV_DL_UINT": "kDLUInt",
        "CV_DL_HANDLE": "kDLOpaqueHandle",
        "CV_DL_BFLOAT": "kDLBfloat",
        "CV_DL_BOOL": "kDLBool",
    }
    checks += [f"(int){ours} == (int){theirs}" for ours, theirs in constants.items()]
    text = "#include <stddef.h>\n#include <tvm/ffi/c_api.h>\n#include <convoy/tvm_abi.h>\n"
    text += "".join(f'_Static_assert({check}, "{check}");\n' for check in checks)
    unit = tmp_path / "layout.c"
    unit.write_text(text)
    includes = [
        libinfo.find_include_path(),
        libinfo.find_dlpack_include_path(),
        *compiler.kernel_include_dirs(),
    ]
    command = [
        *compiler.find_compiler().command,
        "-std=gnu11",
        "-fsyntax-only",
        *(f"-I{i}" for i in includes),
    ]
    done = subprocess.run([*command, str(unit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


DL = {"float32": (2, 32), "bfloat16": (4, 16), "int32": (0, 32), "int8": (0, 8), "uint8": (1, 8)}
"""Element types as DLPack says them: code and bits."""

COPY = """
#include "convoy/region.h"
#include <string.h>
int convoy_entry(const void *const *inputs, void *const *outputs, int64_t images) {
  memcpy(outputs[0], inputs[0], (size_t)images * BYTES);
  return CONVOY_OK;
}
"""


@pytest.fixture(scope="module", params=[ModernEntry, ClassicEntry], ids=["modern", "classic"])
def typed_entries(request):
    """By element type, a region whose argument and result are of it: it copies."""

    def make(dtype):
        x = Tensor("data", (1, 5), dtype)
        region = SimpleNamespace(
            symbol="convoy_entry", sources=[COPY.replace("BYTES", str(x.bytes))], weights=b"none",
            inputs=[x], outputs=[replace(x, name="copied")], batch=None, open_axes=(),
        )  # fmt: skip
        return request.param(region)

    return {dtype: make(dtype) for dtype in DL}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DL)
@pytest.mark.parametrize("other", DL)
def test_the_check_knows_the_type_of_each_argument(typed_entries, dtype, other):
    entry = typed_entries[dtype]
    x = np.arange(10).reshape(2, 5).astype(ARRAYS[dtype])
    y = np.zeros_like(x)
    code, bits = DL[dtype]
    good = {"dtype_code": code, "dtype_bits": bits}
    code, bits = DL[other]
    found = entry(entry.tensor(x, **good), entry.tensor(y, dtype_code=code, dtype_bits=bits))
    if other == dtype:
        assert found is None
        np.testing.assert_array_equal(x, y)
        return
    assert found == (
        "TypeError" if entry.has_kinds else "",
        f"{entry.name}: output argument 1 (copied): expected {dtype} [N, 5], got {other} [2, 5]; "
        f"convert it to {dtype}",
    )
    assert not y.any()


def test_an_address_is_aligned_to_an_element(typed_entries):
    for dtype, entry in typed_entries.items():
        x = np.arange(15).reshape(3, 5).astype(ARRAYS[dtype])
        code, bits = DL[dtype]
        given = {"dtype_code": code, "dtype_bits": bits}
        two = x[:2]
        moved = entry.tensor(two, byte_offset=1, **given)
        found = entry(moved, entry.tensor(np.zeros_like(two), **given))
        size = bits // 8
        text = f"got a misaligned address; pass memory aligned to {size} bytes"
        assert found is None if size == 1 else text in found[1]


COPY_OPEN = """
#include "convoy/region.h"
#include <string.h>
int convoy_entry(const void *const *inputs, void *const *outputs, int64_t images, const int64_t *sizes) {
  memcpy(outputs[0], inputs[0], (size_t)(images * sizes[0] * 4));
  return CONVOY_OK;
}
"""


def test_lengths_that_only_a_call_knows():
    size = sizes.open_size("size[0]", 5, least=2)
    symbol = sizes.as_symbol(size)
    assert symbol is not None
    x = Tensor("data", (1, size))
    region = SimpleNamespace(
        symbol="convoy_entry", sources=[COPY_OPEN], weights=b"none", inputs=[x],
        outputs=[replace(x, name="copied")], batch=None, open_axes=(OpenAxis(symbol, 0, 1),),
    )  # fmt: skip
    entry = ModernEntry(region)
    given, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    assert entry(entry.tensor(given), entry.tensor(y)) is None
    np.testing.assert_array_equal(given, y)
    for changes, text in [
        ({"shape": [2, 1]}, "got float32 [2, 1]; pass at least 2 along axis 1"),
        ({"shape": [2, 2**31]}, f"got float32 [2, {2**31}]; pass at most {2**31 - 1} along axis 1"),
        ({"ndim": 1}, "got float32 [2]; pass a tensor of that shape"),
        ({"shape": cffi.FFI().NULL}, "got a null address for the 2 lengths of its shape"),
    ]:
        found = entry(entry.tensor(given, **changes), entry.tensor(y))[1]
        assert found.startswith(f"{entry.name}: argument 0 (data): expected float32 [N, any], {text}")
    assert (
        "output argument 1 (copied): expected float32 [N, 3], got memory that argument 0"
        in (entry(entry.tensor(given), entry.tensor(given))[1])
    )


COPY_PAIRS = COPY_OPEN.replace("images * sizes[0]", "images * 2 * sizes[0]")


def test_an_axis_that_is_so_often_a_size_that_only_a_call_knows():
    size = sizes.open_size("size[0]", 5, least=2)
    symbol = sizes.as_symbol(size)
    assert symbol is not None
    x = Tensor("data", (1, 2 * size))
    region = SimpleNamespace(
        symbol="convoy_entry", sources=[COPY_PAIRS], weights=b"none", inputs=[x],
        outputs=[replace(x, name="copied")], batch=None, open_axes=(OpenAxis(symbol, 0, 1, 2),),
    )  # fmt: skip
    entry = ModernEntry(region)
    given, y = np.arange(12, dtype=np.float32).reshape(2, 6), np.zeros((2, 6), np.float32)
    assert entry(entry.tensor(given), entry.tensor(y)) is None
    np.testing.assert_array_equal(given, y)
    for shape, text in [
        ([2, 3], "expected float32 [N, any], got float32 [2, 3]; pass at least 4 along axis 1"),
        ([2, 5], "expected float32 [N, 4], got float32 [2, 5]"),
    ]:
        assert text in entry(entry.tensor(given, shape=shape), entry.tensor(y))[1]
