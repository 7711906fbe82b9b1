"""ONNX Runtime's attention of language models is written out: each form against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

HEADS, GROUPS, SIZE, MOST = 4, 2, 16, 40


@dataclass(frozen=True)
class Form:
    """A call of the op, and the sizes it is run at."""

    images: int = 1
    rows: int = 1
    old: int = 0
    """Tokens in the cache; its columns, where ``tokens`` says how many of each image count."""
    tokens: Sequence[int] = ()
    """Of each image, new ones with them; all by default."""
    cache: bool = True
    rotary: bool = False
    packed: bool = False
    places: bool = False
    added: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)

    def model(self, *, is_open: bool) -> onnx.ModelProto:
        """The op alone; with open sizes, or those it is run at."""
        images, rows, old, total = (
            ("b", "s", "p", "t") if is_open else (self.images, self.rows, self.old, self.old + self.rows)
        )
        width = SIZE * (HEADS + 2 * GROUPS if self.packed else HEADS)
        shapes: dict[str, list[Any]] = {"q": [images, rows, width]}
        if not self.packed:
            shapes |= {name: [images, rows, GROUPS * SIZE] for name in ("k", "v")}
        if self.cache:
            shapes |= {name: [images, GROUPS, old, SIZE] for name in ("past_k", "past_v")}
        shapes |= {"behind": [images], "total": []}
        if self.rotary:
            shapes |= {name: [MOST, SIZE // 2] for name in ("cosines", "sines")}
        shapes |= {"places": [images, rows]} if self.places else {}
        shapes |= {"added": [1, HEADS, rows, total]} if self.added else {}
        kinds = {"behind": TensorProto.INT32, "total": TensorProto.INT32, "places": TensorProto.INT64}
        inputs = (
            "q",
            "k",
            "v",
            "past_k",
            "past_v",
            "behind",
            "total",
            "cosines",
            "sines",
            "places",
            "added",
        )
        node = helper.make_node(
            "GroupQueryAttention",
            [name if name in shapes else "" for name in inputs],
            ["y", "present_k", "present_v"],
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=GROUPS,
            do_rotary=int(self.rotary),
            **self.attributes,
        )
        results = {"y": [images, rows, HEADS * SIZE]}
        results |= {name: [images, GROUPS, total, SIZE] for name in ("present_k", "present_v")}
        graph = helper.make_graph(
            [node],
            "net",
            [
                helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), shape)
                for n, shape in shapes.items()
            ],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in results.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def counts(self) -> list[int]:
        return list(self.tokens) or [self.old + self.rows] * self.images

    def feed(self, model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, np.ndarray]:
        sizes = {"b": self.images, "s": self.rows, "p": self.old, "t": self.old + self.rows}
        found = {}
        for value in model.graph.input:
            dims = value.type.tensor_type.shape.dim
            shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in dims]
            found[value.name] = rng.standard_normal(shape).astype(np.float32)
        found["behind"] = np.array(self.counts(), np.int32) - 1
        found["total"] = np.array(self.old + self.rows, np.int32)
        if self.places:
            found["places"] = np.tile(np.arange(self.rows) + self.old, (self.images, 1))
        return found


FORMS = {
    "a prompt": Form(rows=4, cache=False),
    "a prompt, an empty cache": Form(rows=4, rotary=True),
    "prompts of unequal lengths": Form(images=2, rows=4, tokens=(4, 2), cache=False, rotary=True),
    "a token": Form(old=5),
    "a token, rotated": Form(old=5, rotary=True),
    "pairs side by side": Form(old=5, rotary=True, attributes={"rotary_interleaved": 1}),
    "tokens behind unequal ones": Form(images=2, old=5, tokens=(6, 4), rotary=True),
    "some tokens": Form(rows=3, old=5, rotary=True),
    "all in one": Form(rows=3, old=5, rotary=True, packed=True),
    "places": Form(rows=3, old=5, rotary=True, places=True),
    "what is added": Form(rows=3, old=5, added=True, attributes={"softcap": 3.0}),
    "what is added, unequal": Form(images=2, old=5, tokens=(6, 4), added=True),
    "a scale": Form(rows=3, old=5, attributes={"scale": 0.3}),
    "a window": Form(rows=3, old=5, attributes={"local_window_size": 3}),
    "a window of a prompt": Form(rows=6, cache=False, attributes={"local_window_size": 2}),
    "a window longer than all": Form(old=5, attributes={"local_window_size": 30}),
    "no order": Form(rows=3, old=5, attributes={"causal": 0}),
}  # fmt: skip


KNOWN = [name for name, form in FORMS.items() if form.old or not form.cache]
"""A model has no empty tensor of known sizes."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "is_open"), [*((name, True) for name in FORMS), *((name, False) for name in KNOWN)]
)
def test_a_form_gives_what_onnx_runtime_gives(name: str, is_open: bool, run_tvm, run_onnx, rng) -> None:
    form = FORMS[name]
    model = form.model(is_open=is_open)
    feed = form.feed(model, rng)
    found, expected = run_tvm(load(model), *feed.values()), run_onnx(model, *feed.values())
    assert [x.shape for x in found] == [x.shape for x in expected]
    for image, count in enumerate(form.counts()):  # what is behind an image's tokens is not defined
        rows = min(form.rows, count)
        np.testing.assert_allclose(found[0][image, :rows], expected[0][image, :rows], atol=1e-5)
        for mine, theirs in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_allclose(mine[image, :, :count], theirs[image, :, :count], atol=1e-6)


@pytest.mark.slow
def test_a_cache_with_room_is_cut_to_its_tokens(run_tvm, run_onnx, rng) -> None:
    form = Form(old=8, rotary=True)
    model = form.model(is_open=True)
    feed = {**form.feed(model, rng), "behind": np.array([5], np.int32), "total": np.array(6, np.int32)}
    found, expected = run_tvm(load(model), *feed.values()), run_onnx(model, *feed.values())
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    for mine, theirs in zip(found[1:], expected[1:], strict=True):
        assert (mine.shape[2], theirs.shape[2]) == (6, 8)
        np.testing.assert_allclose(mine, theirs[:, :, :6], atol=1e-6)


def layer_of_a_language_model(rng: np.random.Generator) -> onnx.ModelProto:
    """Words, a norm, projections, attention with a cache, a second projection, scores of all words."""
    width, words = HEADS * SIZE, 50
    text = f"""<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        g (int64[b,s] ids, int64[b,t] mask,
            float[b,{GROUPS},p,{SIZE}] old_k, float[b,{GROUPS},p,{SIZE}] old_v) =>
            (float[b,s,{words}] y, float[b,{GROUPS},t,{SIZE}] new_k, float[b,{GROUPS},t,{SIZE}] new_v) {{
        axes = Constant <value_ints = [1]> () one = Constant <value_int = 1> ()
        counts = ReduceSum <keepdims = 0> (mask, axes)
        less = Sub (counts, one) behind = Cast <to = 6> (less)
        mask_shape = Shape (mask) columns = Gather (mask_shape, one) total = Cast <to = 6> (columns)
        x = Gather (table, ids) n = SimplifiedLayerNormalization (x, scale)
        q = MatMul (n, wq) k = MatMul (n, wk) v = MatMul (n, wv)
        a, new_k, new_v = com.microsoft.GroupQueryAttention
            <num_heads = {HEADS}, kv_num_heads = {GROUPS}, do_rotary = 1>
            (q, k, v, old_k, old_v, behind, total, cosines, sines)
        o = MatMul (a, wo) r = Add (o, x) y = MatMul (r, head)
    }}"""
    angles = np.arange(MOST)[:, None] / 100 ** np.linspace(0, 1, SIZE // 2)
    shapes = {
        "table": (words, width), "wq": (width, width), "wk": (width, GROUPS * SIZE),
        "wv": (width, GROUPS * SIZE), "wo": (width, width), "head": (width, words),
    }  # fmt: skip
    weights = {n: rng.standard_normal(shape) / np.sqrt(shape[0]) for n, shape in shapes.items()}
    weights |= {"scale": np.ones(width), "cosines": np.cos(angles), "sines": np.sin(angles)}
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    )
    return model


@pytest.mark.slow
def test_a_prompt_with_nothing_before_it_and_what_follows(tmp_path: Path, run_onnx, rng) -> None:
    model = layer_of_a_language_model(rng)
    executable = convoy.compile(model)
    assert executable.report.flops_share > 0.99
    ops = [op for region in executable.report.regions for op in region.ops]
    assert ops.count("attention") == 1
    assert "softmax" not in ops
    executable.export_library(str(tmp_path / "net.so"))
    runner = convoy.load(tmp_path / "net.so")
    for images in (1, 2):
        cache = [np.zeros((images, GROUPS, 0, SIZE), np.float32)] * 2
        for rows in (5, 1, 1, 3 if images == 1 else 1):
            count = cache[0].shape[2] + rows
            feed = [rng.integers(0, 50, (images, rows)), np.ones((images, count), np.int64), *cache]
            found, expected = runner.run(feed), run_onnx(model, *feed)
            for mine, theirs in zip(found, expected, strict=True):
                assert mine.shape == theirs.shape
                np.testing.assert_allclose(mine, theirs, atol=2e-5)
            cache = list(expected[1:])


@pytest.mark.parametrize(
    "attributes",
    [
        {"smooth_softmax": 1},
        {"sliding_window_cache": 1, "local_window_size": 3},
        {"kv_num_heads": 3},
        {"num_heads": 0},
        {"num_heads": 1 << 40, "kv_num_heads": 1 << 40},
        {"causal": 2},
        {"local_window_size": 0},
        {"softcap": -1.0},
        {"softcap": float("nan")},
        {"scale": float("inf")},
    ],
)
def test_other_forms_are_refused_by_name(attributes: dict[str, float]) -> None:
    model = Form(old=5).model(is_open=False)
    (node,) = model.graph.node
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(k, v) for k, v in attributes.items())])
    with pytest.raises(ModelError, match="GroupQueryAttention"):
        convoy.compile(model)


def test_a_call_without_the_number_of_tokens_is_refused_by_name() -> None:
    model = Form(old=5).model(is_open=False)
    model.graph.node[0].input[5] = ""
    with pytest.raises(ModelError, match="GroupQueryAttention"):
        convoy.compile(model)
