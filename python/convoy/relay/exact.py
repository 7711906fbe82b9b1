"""Products of bytes that TVM is left with, where TVM's are wrong.

On x86 without VNNI TVM multiplies bytes by an instruction whose sums of two products end at 2^15 - 1:
255 · 127 + 255 · 127 is 32767.  Of int16 it multiplies exactly, as it does for a CPU it does not know.
"""

from __future__ import annotations

import tvm
from tvm import relay
from tvm.ir import IRModule
from tvm.target import Target

from convoy.relay.dataflow import dims, dtype, op_name
from convoy.relay.lets import rebuild_open
from convoy.relay.module import functions_of, replace_functions
from convoy.relay.no_touch import is_open

_MAKERS = {name: getattr(relay.nn, name) for name in ("conv2d", "dense", "batch_matmul")}
_BYTES = ("int8", "uint8")
_VNNI = ("avx512vnni", "avxvnni")


def widen_products(module: IRModule, machine: Target) -> IRModule:
    """``module``, in which products of bytes are products of int16 where TVM's of bytes saturate."""
    if machine.kind.name != "llvm" or not _saturates(machine):
        return module
    own = {var: function for var, function in functions_of(module) if is_open(function)}
    wide = {var: rebuild_open(function, _widen) for var, function in own.items()}
    changed = {var: new for var, new in wide.items() if not new.same_as(own[var])}
    return relay.transform.InferType()(replace_functions(module, changed)) if changed else module


def _saturates(machine: Target) -> bool:
    has = tvm.get_global_func("target.target_has_feature", allow_missing=True)
    if has is None:  # this TVM asks other questions
        return False
    return bool(has("sse4.2", machine)) and not any(has(name, machine) for name in _VNNI)


def _widen(old: relay.Call, new: relay.Call) -> relay.Expr:
    kind, _, name = op_name(old).partition(".")
    if kind not in ("nn", "qnn") or name not in _MAKERS or dtype(old) != "int32":
        return new
    if any(dtype(arg) not in _BYTES for arg in old.args[:2]):
        return new
    data, weight = (relay.cast(arg, "int16") for arg in new.args[:2])
    if kind == "qnn":
        data_zero, weight_zero = (relay.cast(arg, "int16") for arg in new.args[2:4])
        data = relay.subtract(data, data_zero)
        if dims(old.args[3]):  # one for each output
            axis = str(old.attrs.kernel_layout).index("O") if name == "conv2d" else 0
            weight = relay.nn.bias_add(weight, relay.negative(weight_zero), axis)
        else:
            weight = relay.subtract(weight, weight_zero)
    attrs = {key: old.attrs[key] for key in old.attrs.keys()}  # noqa: SIM118 -- attributes are no dict
    made = _MAKERS[name](data, weight, **attrs)
    return relay.Call(made.op, made.args, made.attrs, None, old.span)
