"""``torch.compile(model, backend="convoy")``: what PyTorch cuts out of a program, run by Convoy.

Parameters and buffers are taken as constants, as regions want their weights: a graph is for inference, and
whoever changes a weight compiles again (``torch._dynamo.reset()``).  Where a gradient is wanted, or a graph
is none that Convoy compiles, PyTorch runs it as it is, and a warning says why.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from convoy.deploy.runner import Runner
from convoy.errors import ConvoyError
from convoy.text import line

__all__ = ["compile_graph"]

Graph = Callable[..., Any]


class GraphWarning(UserWarning):
    """A graph stays with PyTorch."""


def compile_graph(graph: Any, example_inputs: Sequence[Any]) -> Graph:
    """Compile a graph that torch.compile cut out; the backend ``convoy`` (entry point of the package).

    Parameters
    ----------
    graph : torch.fx.GraphModule
        What is to be run.
    example_inputs : Sequence[Any]
        Its arguments: parameters and buffers among them are taken as they are.

    Returns
    -------
    Callable
        Takes the arguments and gives the outputs.
    """
    if torch.is_grad_enabled() and any(
        isinstance(x, torch.Tensor) and x.requires_grad for x in (*example_inputs, *graph.parameters())
    ):
        return _leave(graph, "gradients are wanted; call it in torch.no_grad() or inference_mode()")
    weights = {i: x for i, x in enumerate(example_inputs) if _is_weight(x)}
    inner = _bind(graph, weights)
    _write_out_encoders(inner)
    runners: dict[object, Runner | None] = {}

    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
    def run(*arguments: Any) -> Any:
        given = [x for i, x in enumerate(arguments) if i not in weights]
        key = tuple((x.shape, x.dtype) if isinstance(x, torch.Tensor) else x for x in given)
        if key not in runners:
            runners[key] = _compile(inner, given)
        runner = runners[key]
        if runner is None:
            return graph(*arguments)
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        return tuple(map(_tensor, runner.run(tensors)))

    made: Graph = run
    return made


def _tensor(array: Any) -> Any:
    """The tensor that shares an array's memory; of NumPy's types PyTorch does not know ml_dtypes'."""
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    bits = torch.from_numpy(array.view(f"u{array.dtype.itemsize}"))
    return bits.view(getattr(torch, array.dtype.name))


class _Fixed(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A graph of which all arguments but tensors, such as sizes, are what they are."""

    def __init__(self, inner: Any, given: Sequence[Any]) -> None:
        super().__init__()
        self.inner = inner
        self.given = [None if isinstance(x, torch.Tensor) else x for x in given]

    def forward(self, *tensors: Any) -> Any:
        left = iter(tensors)
        return self.inner(*(next(left) if x is None else x for x in self.given))


def _compile(inner: Any, given: Sequence[Any]) -> Runner | None:
    """A runner for arguments of these sizes; None, with a warning, where there can be none."""
    from convoy.relax.compile import compile

    try:
        if any(x.device.type != "cpu" for x in given if isinstance(x, torch.Tensor)):
            raise TypeError("expected tensors of the CPU, got others")
        outputs = next(node for node in inner.graph.nodes if node.op == "output").args[0]
        if not all(isinstance(output, torch.fx.Node) for output in outputs):
            raise TypeError("expected outputs that are tensors, got others")
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        return Runner(compile(_Fixed(inner, given).eval(), example_inputs=tensors))
    except (ConvoyError, TypeError) as error:
        _warn(str(error))
        return None


def _is_weight(value: Any) -> bool:
    """A parameter or buffer: PyTorch marks the tensors whose address stays."""
    kept = getattr(value, "_dynamo_static_input_type", None) is not None
    return isinstance(value, torch.nn.Parameter) or (isinstance(value, torch.Tensor) and kept)


def _bind(graph: Any, weights: dict[int, Any]) -> Any:
    """The graph with these arguments as buffers of its own, which share their memory."""
    inner = torch.fx.GraphModule(graph, _copy(graph.graph))
    arguments = [node for node in inner.graph.nodes if node.op == "placeholder"]
    for i, value in weights.items():
        inner.register_buffer(f"convoy_weight_{i}", value.detach())
        with inner.graph.inserting_after(arguments[i]):
            bound = inner.graph.get_attr(f"convoy_weight_{i}")
        arguments[i].replace_all_uses_with(bound)
        inner.graph.erase_node(arguments[i])
    inner.recompile()
    return inner.eval()


def _write_out_encoders(graph: Any) -> None:
    """Put its ops in the place of each encoder layer that PyTorch made one call: no exporter knows it."""
    for node in graph.graph.nodes:
        if node.target is torch._transformer_encoder_layer_fwd and not any(node.args[_MASK:]):
            node.target, node.args = _encode, node.args[:_MASK]
    graph.recompile()


_MASK = 18
"""The place of the mask among the arguments of an encoder layer; behind it is its kind."""


def _encode(x: Any, width: int, heads: int, *rest: Any) -> Any:
    """An encoder layer of a transformer, as ``nn.TransformerEncoderLayer`` calls it without gradients."""
    inputs, inputs_bias, outputs, outputs_bias, is_gelu, is_norm_first, epsilon = rest[:7]
    norms, (wide, wide_bias, narrow, narrow_bias) = (rest[7:9], rest[9:11]), rest[11:]
    functions = torch.nn.functional

    def norm(x: Any, i: int) -> Any:
        return functions.layer_norm(x, [width], *norms[i], epsilon)

    def attend(x: Any) -> Any:
        parts = functions.linear(x, inputs, inputs_bias).unflatten(-1, (3, heads, width // heads))
        mixed = functions.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind(0))
        return functions.linear(mixed.transpose(1, 2).flatten(2), outputs, outputs_bias)

    def feed(x: Any) -> Any:
        hidden = functions.linear(x, wide, wide_bias)
        active = functions.gelu(hidden) if is_gelu else functions.relu(hidden)
        return functions.linear(active, narrow, narrow_bias)

    if is_norm_first:
        x = x + attend(norm(x, 0))
        return x + feed(norm(x, 1))
    x = norm(x + attend(x), 0)
    return norm(x + feed(x), 1)


def _copy(graph: Any) -> Any:
    made = torch.fx.Graph()
    output = made.graph_copy(graph, {})
    made.output(output)
    return made


def _leave(graph: Any, why: str) -> Graph:
    _warn(why)
    run: Graph = graph.forward
    return run


def _warn(why: str) -> None:
    warnings.warn(line(f"convoy: a graph stays with PyTorch: {why}"), GraphWarning, stacklevel=2)
