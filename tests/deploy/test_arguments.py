"""What a caller in Python may pass to a region, and what it is told otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from elsewhere import ElsewhereArray
from tiny_region import make_region
from tvm import relax

from convoy.deploy.dtypes import DLPACK, numpy_dtype
from convoy.deploy.tensors import OF_TVM, arrays, copied, lent

SHAPE = (2, 3, 8, 4)
EXPECTED = r"convoy_picky: argument 0 \(data\): expected float32 \[N, 3, 8, 4\], got "


@pytest.fixture
def main(build):
    region = make_region("convoy_picky", shape=(1, *SHAPE[1:]), batch=None)
    return relax.VirtualMachine(build(region), tvm.cpu())["main"]


def shifted(x: np.ndarray, offset: int) -> np.ndarray:
    """A copy of ``x`` at ``offset`` bytes past an address that suits any vector."""
    memory = np.zeros(x.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    copy = np.ndarray(x.shape, x.dtype, buffer=memory.data, offset=start)
    copy[...] = x
    return copy


def some_input() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("offset", [4, 12, 60])
def test_any_address_a_float_may_have_is_taken(main, offset):
    x = some_input()
    np.testing.assert_array_equal(
        np.from_dlpack(main(shifted(x, offset))), main(tvm.runtime.tensor(x)).numpy()
    )


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda x: np.swapaxes(np.swapaxes(x, 1, 3).copy(), 1, 3), r"strides \[96, 1, 3, 24\]; make it"),
        (lambda x: x[::-1], r"strides \[-96, 32, 4, 1\]; make it contiguous"),
        (lambda x: np.repeat(x, 2, axis=3)[..., ::2], r"strides \[192, 64, 8, 2\]; make it contiguous"),
        (lambda x: shifted(x, 2), "a misaligned address; pass memory aligned to 4 bytes"),
        (ElsewhereArray, "one on device type 2; copy it to the CPU"),
    ],
    ids=["transposed", "backwards", "every-second", "misaligned", "on-a-gpu"],
)
def test_other_memory_is_refused_by_name(main, change, got):
    changed = change(some_input())
    with pytest.raises(ValueError, match=EXPECTED + got):
        main(changed)


def test_no_images_are_taken_whatever_their_strides(main):
    # NumPy's strides of an empty array are all 0
    none = np.zeros((0, *SHAPE[1:]), np.float32)
    assert set(none.strides) == {0}
    assert np.from_dlpack(main(none)).shape == none.shape


def test_view_of_a_tensor_is_taken_where_it_begins(main):
    x = np.concatenate([some_input(), some_input() + 1])
    view = tvm.runtime.tensor(x)._create_view(SHAPE, relative_byte_offset=x.nbytes // 2)
    np.testing.assert_array_equal(main(view).numpy(), main(tvm.runtime.tensor(x[2:])).numpy())


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (np.zeros((2, 3, 8, 5), np.float32), r"5 vs\. 4.*param=x.*3, 8, 4.*shape\[3\] mismatch"),
        (np.zeros((3, 8, 4), np.float32), r"param=x.*3, 8, 4.*ndim 4 but get 3"),
        (np.zeros(SHAPE), r"param=x.*float32.*but get float64"),
        (3, r"param=x.*expect a Tensor but get int"),
    ],
    ids=["shape", "rank", "dtype", "no-tensor"],
)
def test_virtual_machine_names_what_it_refuses_itself(main, given, got):
    value = tvm.runtime.tensor(given) if isinstance(given, np.ndarray) else given
    with pytest.raises((RuntimeError, ValueError, TypeError), match=got):
        main(value)


@pytest.mark.parametrize("name", DLPACK)
def test_types_that_numpy_has_by_a_package_come_back_as_they_went(name):
    sent = np.arange(6).astype(numpy_dtype(name)).reshape(2, 3)
    for tensor in (copied("x", sent), lent("x", sent, OF_TVM)):
        (found,) = arrays(tensor)
        assert found.dtype == sent.dtype
        np.testing.assert_array_equal(found.astype(np.float32), sent.astype(np.float32))


def test_types_of_numpys_own_are_not_asked_for_their_names(monkeypatch):
    # a name takes NumPy 3 us, of which a small network's call has two: None in their list says who asks
    monkeypatch.setattr("convoy.deploy.tensors.DLPACK", None)
    (found,) = arrays(copied("x", some_input()[:, :, ::2]))
    np.testing.assert_array_equal(found, some_input()[:, :, ::2])
