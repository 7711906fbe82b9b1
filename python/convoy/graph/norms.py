"""Layer, RMS and group norms written out in ops, in the forms that frontends and exporters write.

| name | written out |
|---|---|
| centred | x - mean(x), over the last axes |
| deviation | √(mean(centred²) + ε), over the same axes |
| layer norm | centred / deviation · gamma + beta, or x·s + (beta - mean(x)·s) with s = gamma / deviation |
| rms norm | x / √(mean(x²) + ε) · gamma |
| group norm | that of x as [1, groups, …], without gamma and beta, as [1, C, H, W] again |

Each public function is a rewrite of ``graph.rewrite``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from convoy.graph.graph import Graph
from convoy.graph.merging import Made, as_row
from convoy.graph.ops import Binary, GroupNorm, LayerNorm, Node, Reduce, Reshape, Unary

Norm = LayerNorm | GroupNorm


def raise_layer_norm(node: Node, graph: Graph) -> LayerNorm | None:
    """(x - mean(x)) / √(variance + ε)  =>  layer_norm(x)."""
    for name, deviation in _operands(node, "div") + _operands(node, "mul"):
        mean = _centred(name, graph)
        power = 0.5 if isinstance(node, Binary) and node.kind == "div" else -0.5
        epsilon = _epsilon(deviation, power, mean, graph) if mean is not None else None
        if mean is not None and epsilon is not None and graph.shape(mean.x) == graph.shape(node.output):
            return _layer_norm(node, mean, epsilon)
    return None


def raise_scaled_layer_norm(node: Node, graph: Graph) -> LayerNorm | None:
    """x·s + (beta - mean(x)·s) with s = gamma / √(variance + ε)  =>  layer_norm(x, gamma, beta)."""
    for product, rest in _operands(node, "add"):
        for beta, shift in _operands(graph.producer.get(rest), "sub"):
            for mean_name, scale in _operands(graph.producer.get(shift), "mul"):
                mean = _mean(mean_name, graph)
                if mean is None or {mean.x, scale} != set(_made_of(product, graph)):
                    continue
                for deviation, gamma in _operands(graph.producer.get(scale), "mul"):
                    epsilon = _epsilon(deviation, -0.5, mean, graph)
                    if epsilon is None or graph.shape(mean.x) != graph.shape(node.output):
                        continue
                    norm = _layer_norm(node, mean, epsilon)
                    if _is_along(gamma, norm, graph) and _is_along(beta, norm, graph):
                        return replace(norm, inputs=(mean.x, gamma, beta))
    return None


def raise_rms_norm(node: Node, graph: Graph) -> LayerNorm | None:
    """x / √(mean(x²) + ε)  =>  rms_norm(x), which is a layer norm that is not centred."""
    for x, deviation in _operands(node, "div") + _operands(node, "mul"):
        power = 0.5 if isinstance(node, Binary) and node.kind == "div" else -0.5
        found = _deviation(deviation, power, graph)
        if found is not None and found.squared == (x, x) and graph.shape(x) == graph.shape(node.output):
            norm = _layer_norm(node, _Mean(x, found.axis), found.epsilon)
            return replace(norm, centred=False, pattern="rms_norm")
    return None


def raise_group_norm(node: Node, graph: Graph) -> GroupNorm | Made | None:
    """layer_norm(x as [1, groups, …]) as [1, C, H, W]  =>  group_norm(x);  also of each channel of x.

    Of an image of one row it may be [1, C, W], as behind a 1-D convolution.
    """
    made = graph.producer.get(node.inputs[0]) if isinstance(node, Reshape) else node
    if not isinstance(made, Norm) or len(made.inputs) > 1 or isinstance(node, GroupNorm):
        return None
    if isinstance(made, LayerNorm) and not made.centred:
        return None
    x = made.inputs[0]
    if made is not node:
        if not _is_read_only_by(node, made.output, graph):
            return None
        before = graph.producer.get(x)
        x = before.inputs[0] if isinstance(before, Reshape) else x
    shape = graph.shape(node.output)
    groups = made.groups if isinstance(made, GroupNorm) else prod(graph.shape(made.output)[: made.axis])
    image = as_row(shape) if len(shape) == 3 and made is not node else shape
    if graph.shape(x) != image or len(image) != 4 or image[0] != 1 or image[1] % groups:
        return None
    if made is not node and graph.shape(made.output) == image:
        return None  # it is one already
    norm = GroupNorm(
        inputs=(x,), output=node.output, origin=made.origin, groups=groups, epsilon=made.epsilon
    )
    if image == shape:
        return norm
    row = replace(graph.tensors[node.output], name=f"{node.output}.row", shape=image)
    return Made((replace(norm, output=row.name), replace(node, inputs=(row.name,))), tensors=(row,))


def merge_into_norm(node: Node, graph: Graph) -> Norm | None:
    """layer_norm(x) · gamma  =>  layer_norm(x, gamma);  that + beta  =>  layer_norm(x, gamma, beta)."""
    for inputs, kind in ((1, "mul"), (2, "add")):
        for name, constant in _operands(node, kind):
            norm = graph.producer.get(name)
            if (
                isinstance(norm, Norm)
                and len(norm.inputs) == inputs
                and _is_along(constant, norm, graph)
                and _is_read_only_by(node, name, graph)
            ):
                return replace(norm, inputs=(*norm.inputs, constant), output=node.output)
    return None


def drop_unit_scale(node: Node, graph: Graph) -> Norm | None:
    """layer_norm(x, 1, 0)  =>  layer_norm(x)."""
    if not isinstance(node, Norm) or len(node.inputs) == 1:
        return None
    units = zip(node.inputs[1:], (1, 0), strict=False)
    trivial = all((graph.constants[name] == unit).all() for name, unit in units)
    return replace(node, inputs=node.inputs[:1]) if trivial else None


@dataclass(frozen=True)
class _Mean:
    """The mean of x over its last axes, from ``axis`` on."""

    x: str
    axis: int


def _layer_norm(node: Node, mean: _Mean, epsilon: float) -> LayerNorm:
    return LayerNorm(
        inputs=(mean.x,), output=node.output, origin=node.origin, axis=mean.axis, epsilon=epsilon
    )


def _mean(name: str, graph: Graph) -> _Mean | None:
    """What ``name`` is the mean of, over the last axes, if it is one."""
    made = graph.producer.get(name)
    if not isinstance(made, Reduce) or made.kind != "mean" or not made.keepdims:
        return None
    x = made.inputs[0]
    last = tuple(range(made.axes[0], len(graph.shape(x))))
    return _Mean(x, made.axes[0]) if made.axes == last else None


def _centred(name: str, graph: Graph) -> _Mean | None:
    """The mean that ``name`` is its x without."""
    for x, subtracted in _operands(graph.producer.get(name), "sub"):
        mean = _mean(subtracted, graph)
        return mean if mean is not None and mean.x == x else None
    return None


@dataclass(frozen=True)
class _Deviation:
    """√(mean(a · b) + ε) or 1 over it, the mean over the last axes."""

    squared: tuple[str, str]
    axis: int
    epsilon: float


def _deviation(name: str, power: float, graph: Graph) -> _Deviation | None:
    """What ``name`` is if it is (mean of a square + ε)^power."""
    base = _base(name, power, graph)
    for variance, constant in _operands(graph.producer.get(base or ""), "add"):
        epsilon, about = graph.scalar(constant), _mean(variance, graph)
        square = None if about is None else graph.producer.get(about.x)
        if epsilon is None or about is None:
            continue
        if isinstance(square, Unary) and square.kind == "square":
            return _Deviation((square.inputs[0], square.inputs[0]), about.axis, epsilon)
        if isinstance(square, Binary) and square.kind == "mul":
            return _Deviation((square.inputs[0], square.inputs[1]), about.axis, epsilon)
        if isinstance(square, Binary) and square.kind == "pow" and graph.scalar(square.inputs[1]) == 2:
            return _Deviation((square.inputs[0], square.inputs[0]), about.axis, epsilon)
    return None


def _epsilon(name: str, power: float, mean: _Mean, graph: Graph) -> float | None:
    """ε if ``name`` is (variance + ε)^power, with the variance of x about this mean."""
    found = _deviation(name, power, graph)
    if found is None or found.axis != mean.axis:
        return None
    return found.epsilon if all(_centred(factor, graph) == mean for factor in found.squared) else None


def _base(name: str, power: float, graph: Graph) -> str | None:
    """What ``name`` is the root of, ``power`` 0.5, or 1 over the root of, -0.5."""
    made = graph.producer.get(name)
    if isinstance(made, Unary):
        if made.kind == {0.5: "sqrt", -0.5: "rsqrt"}[power]:
            return made.inputs[0]
        return _base(made.inputs[0], -power, graph) if made.kind == "reciprocal" else None
    if isinstance(made, Binary) and made.kind == "div" and graph.scalar(made.inputs[0]) == 1:
        return _base(made.inputs[1], -power, graph)
    if isinstance(made, Binary) and made.kind == "pow" and graph.scalar(made.inputs[1]) == power:
        return made.inputs[0]
    return None


def _operands(node: Node | None, kind: str) -> list[tuple[str, str]]:
    """The operands of an op of this kind, in both orders where they may be exchanged; else none."""
    if not isinstance(node, Binary) or node.kind != kind:
        return []
    x, y = node.inputs
    return [(x, y), (y, x)] if kind in ("add", "mul") else [(x, y)]


def _made_of(name: str, graph: Graph) -> tuple[str, ...]:
    """The factors of a product."""
    return next(iter(_operands(graph.producer.get(name), "mul")), ())


def _is_along(name: str, norm: Norm, graph: Graph) -> bool:
    """A number for each element of a layer norm's row, or each channel of a group norm, and a constant?"""
    shape = graph.shape(norm.inputs[0])
    if name not in graph.constants or len(graph.shape(name)) > len(shape):
        return False
    padded = (1,) * (len(shape) - len(graph.shape(name))) + graph.shape(name)
    if isinstance(norm, LayerNorm):
        return padded == (1,) * norm.axis + shape[norm.axis :]
    return padded == (1, shape[1], 1, 1)


def _is_read_only_by(node: Node, name: str, graph: Graph) -> bool:
    return name not in graph.outputs and graph.consumers[name] == (node,)


REWRITES = (
    raise_layer_norm,
    raise_scaled_layer_norm,
    raise_rms_norm,
    raise_group_norm,
    merge_into_norm,
    drop_unit_scale,
)
