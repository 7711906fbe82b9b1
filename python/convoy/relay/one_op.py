"""A module of a user's model that stays one op, from a TVM frontend to its code generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relay
from tvm.relay.frontend.common import infer_type

from convoy.offload.names import check_codegen

Converter = Callable[..., relay.Expr]
"""What a frontend calls for an op: with the op's inputs, and whatever else it passes."""


def one_op(make: Callable[..., relay.Expr], *, codegen: str, name: str) -> Converter:
    """A converter that makes of an op the call of a marked function, which nothing opens on its way.

    Give it to ``relay.frontend.from_pytorch(…, custom_convert_map={"mine::gate": one_op(…)})``, or to any
    frontend that calls its converters with a list of inputs first; ``convert([x, w])`` is a call, too.
    Build with a target that contains Convoy, or after ``partition_for_convoy``.

    Parameters
    ----------
    make : Callable[..., relay.Expr]
        Says what the op computes, in Relay, of its inputs. Those that are expressions come as parameters
        of the function; numbers of Python as they are.
    codegen : str
        Whose the function is: ``relay.ext.<codegen>`` gets it, as ``make`` wrote it.
    name : str
        Name of the function, with a number behind it where several differ.

    Raises
    ------
    ConvoyError
        For a ``codegen`` that is no name.
    """
    check_codegen(codegen)

    def convert(inputs: Sequence[Any], *_: Any) -> relay.Expr:
        params = {
            i: relay.Var(f"p{i}", infer_type(value).checked_type)
            for i, value in enumerate(inputs)
            if isinstance(value, relay.Expr)
        }
        body = make(*(params.get(i, value) for i, value in enumerate(inputs)))
        function = relay.Function(list(params.values()), body)
        marked = function.with_attr({"Compiler": codegen, "global_symbol": name})
        return relay.Call(marked, [inputs[i] for i in params])

    return convert
