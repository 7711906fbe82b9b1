"""One mutant by its seed: a small real model, and one thing wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from mutants import nodes, values, whole
from mutants.damage import damage_bytes
from mutants.external import place_outside
from mutants.fields import damage_field
from mutants.sources import pick_model

Mutation = Callable[[onnx.ModelProto, np.random.Generator], str | None]

MUTATIONS: tuple[Mutation, ...] = (
    nodes.remove_node, nodes.repeat_node, nodes.reorder_nodes, nodes.replace_op, nodes.replace_op,
    nodes.change_domain, nodes.change_operands, nodes.change_operands, nodes.close_cycle,
    nodes.rename_tensor, nodes.rename_tensor, nodes.rename_node, nodes.rename_values,
    nodes.change_outputs, values.change_input_dim, values.change_input_dim, values.change_weight_dims,
    values.resize_weight, values.change_type, values.convert_weight, values.change_weight_values,
    values.change_integers, values.change_attribute, values.change_attribute, values.change_attribute,
    values.add_attribute, whole.change_opset, whole.change_ir_version, whole.wrap_in_subgraph,
    whole.nest_deeply,
)  # fmt: skip
"""Each is drawn as often as it stands here."""
SHARES = {"bytes": 0.25, "fields": 0.2, "external": 0.1, "structure": 0.45}


@dataclass(frozen=True)
class Mutant:
    """A damaged model in a file."""

    seed: int
    path: Path
    what: str
    """What was done to it, and to what."""
    must_refuse: bool = False
    """An answer would be wrong, whatever it is."""


def make_mutant(seed: int, folder: Path) -> Mutant:
    """The mutant of ``seed``, the same on every machine.

    It is written to ``folder/SEED/model/model.onnx``, and what it is to ``folder/SEED/what.txt``.
    """
    rng = np.random.default_rng(seed)
    place = folder / str(seed) / "model"
    place.mkdir(parents=True)
    path = place / "model.onnx"
    model = pick_model(rng)
    name, must_refuse = model.graph.name, False
    kind = str(rng.choice(list(SHARES), p=list(SHARES.values())))
    if kind == "bytes":
        data, what = damage_bytes(model, rng)
    else:
        if kind == "fields":
            what = damage_field(model, rng)
        elif kind == "external" and any(tensor.raw_data for tensor in model.graph.initializer):
            what, must_refuse = place_outside(model, place, rng)
        else:
            what = _change_structure(model, rng)
        data = model.SerializeToString()
    path.write_bytes(data)
    what = f"{name}: {what}"
    (folder / str(seed) / "what.txt").write_text(ascii(what))
    return Mutant(seed, path, what, must_refuse)


def _change_structure(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    while True:
        what = MUTATIONS[int(rng.integers(len(MUTATIONS)))](model, rng)
        if what is not None:
            return what
