"""Where every tensor of a region lives while its plan is made.

A tensor has a home (the layout it is made in) and may get copies in other layouts where a reader
asks for one.  Some tensors are views: an operand that is computed into its place in a concat, a
slice that is a range of its source's planes, a reshape of a row-major tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from convoy.graph.dtypes import BYTES, DType, cell_elements
from convoy.graph.graph import Graph
from convoy.graph.ops import Dequantize, Node, Sides
from convoy.graph.views import View, view_whole
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.conv2d.halo import find_halo
from convoy.kernels.conv2d.pools import TilePool
from convoy.kernels.copy import CopyChannels, copy_whole
from convoy.kernels.layout import ClearHalo, Convert, Pack, Unpack
from convoy.kernels.moved import Moved, goes_by_vectors, unpack_strides
from convoy.kernels.precision import Narrow, choose_narrow
from convoy.plan.buffers import Array, Buffer, Map, Space
from convoy.plan.fuse import Fusion
from convoy.plan.maps import NO_HALO, image_shape, make_map, map_size, widest
from convoy.plan.plan import Weight
from convoy.plan.recipes import PackMap, PackRaw, PackVector, Recipe
from convoy.plan.step import Note, Scale, Step
from convoy.plan.views import find_border, find_outputs_in_other_shapes, find_views
from convoy.target import Target


@dataclass(frozen=True)
class Rounded:
    """Bytes that are made of floats as they are packed, or, where they are read as they lie, by a step."""

    x: Array
    scale: Scale
    convert: Callable[[], Step]


class Values:
    """Buffers and steps of one plan in the making, and what was decided before.

    ``choices`` are those of convolutions, by the name of their output; ``pools`` those that are computed
    with one, by the name of its fusion's output; ``narrow`` says what each fusion knows of bfloat16.
    """

    def __init__(
        self,
        graph: Graph,
        fusions: Sequence[Fusion],
        blocked: Mapping[str, bool],
        choices: Mapping[str, Choice],
        pools: Mapping[str, TilePool],
        target: Target,
        threads: int,
        narrow: Mapping[str, Narrow] | None = None,
    ) -> None:
        self.graph = graph
        self.target = target
        self.threads = threads
        self.lanes = target.lanes
        self.weights_are_far = sum(graph.tensors[name].bytes for name in graph.constants) > (
            threads * target.l2_bytes
        )
        """Whether weights do not wait for the next call in the L2 of the cores that read them."""
        self.blocked = blocked
        self.choices = choices
        self.pools = pools
        self.buffers: list[Buffer] = []
        self.weights: list[Weight] = []
        self.steps: list[Step] = []
        self._arrays: dict[str, Array] = {}
        self._maps: dict[str, Map] = {}
        self._planar: dict[str, Map] = {}
        self._cells: dict[tuple[str, int], Map] = {}
        self._recipes: dict[Recipe, int] = {}
        self.views = find_views(graph, fusions, blocked, self.lanes)
        self._outputs = find_outputs_in_other_shapes(graph)
        self.narrow = (
            choose_narrow(graph, fusions, blocked, narrow, lambda name: self.root(name)[0])
            if narrow and target.bfloat16
            else frozenset()
        )
        """Tensors that are made as maps of bfloat16."""
        self._converted: dict[str, Map] = {}
        self._zeros: dict[str, int] = {}
        self._rounded: dict[str, Rounded] = {}
        self._moved: dict[str, Moved] = {}
        self.halos = self._find_halos(fusions)
        for i, name in enumerate(graph.inputs):
            shape = graph.shape(name)
            buffer = self._new("input", graph.tensors[name].bytes, i)
            self._arrays[name] = Array(buffer, 0, shape, graph.dtype(name))

    def _new(self, space: Space, size: int, index: int = 0) -> int:
        """The number of a new buffer of ``size`` bytes."""
        self.buffers.append(Buffer(space, size, index))
        return len(self.buffers) - 1

    def _place(self, space: Space, m: Map) -> Map:
        """The map in a new buffer of its own."""
        return replace(m, buffer=self._new(space, map_size(m) * BYTES[m.dtype]))

    # Views and halos, known before anything is placed.

    def root(self, name: str) -> tuple[str, int]:
        """The tensor whose buffer holds ``name``, and the channel at which it begins there."""
        channel = 0
        while name in self.views:
            view = self.views[name]
            name, channel = view.source, channel + view.channel
        return name, channel

    def _find_halos(self, fusions: Sequence[Fusion]) -> dict[str, Sides]:
        halos: dict[str, Sides] = {}
        for fusion in fusions:
            halo = find_halo(fusion.anchor, self.graph, self.choices)
            if halo != NO_HALO:
                x = fusion.anchor.inputs[0]
                root, _ = self.root(fusion.source(x))
                halos[root] = widest(halos.get(root, NO_HALO), halo)
                made = fusion.bytes_of(x)
                if made is not None:
                    self._zeros.setdefault(root, self._zero_of(made))
        for fusion in reversed(fusions):  # who reads what is padded comes before who pads
            border = find_border(fusion.anchor, self.graph) if self.blocked[fusion.output] else None
            if border is not None:
                (x,), beyond = fusion.anchor.inputs, halos.get(fusion.output, NO_HALO)
                top, left, bottom, right = (a + b for a, b in zip(border, beyond, strict=True))
                root, _ = self.root(x)
                halos[root] = widest(halos.get(root, NO_HALO), (top, left, bottom, right))
        return halos

    # Constants.

    def weight(self, recipe: Recipe, *shape: int, dtype: DType = "float32") -> Array:
        """A packed constant of so many elements; equal recipes share one."""
        if recipe not in self._recipes:
            self._recipes[recipe] = self._new("weights", math.prod(shape) * BYTES[dtype])
            self.weights.append(Weight(self._recipes[recipe], recipe))
        return Array(self._recipes[recipe], 0, shape, dtype)

    def vector(self, constants: Sequence[str], size: int, multiple: int) -> Array:
        """The sum of float32 constants of ``size`` values or one, zero-padded to a multiple."""
        padded = -(-size // multiple) * multiple
        return self.weight(PackVector(tuple(constants), size, padded), padded)

    def constant_map(self, name: str, shape: tuple[int, int, int]) -> Map:
        """A constant, broadcast to [C, H, W], as a blocked map without halo."""
        m = make_map(0, *shape, self.lanes, dtype=self.graph.dtype(name))
        recipe = PackMap(name, shape, self.lanes, m.dtype)
        return replace(m, buffer=self.weight(recipe, map_size(m), dtype=m.dtype).buffer)

    # Tensors.

    def array(self, name: str) -> Array:
        """The tensor in row-major form; unpacked first if its home is a map."""
        if name in self.graph.constants:
            return self.weight(PackRaw(name), *self.graph.shape(name), dtype=self.graph.dtype(name))
        if name not in self._arrays and name in self._rounded:
            self.steps.append(self._rounded[name].convert())
        elif name not in self._arrays and name in self._moved:
            self._make_moved(name, self._moved[name])
        elif name not in self._arrays:
            source = self._maps[name]
            self._arrays[name] = self._array_of_map(name, source) or self._unpack(name, source)
        return self._arrays[name]

    def is_array(self, name: str) -> bool:
        """Whether it has been made in row-major form."""
        return name in self._arrays

    def map_alone(self, name: str) -> Map | None:
        """The map a tensor lies in, if it lies nowhere else."""
        return None if name in self._arrays else self._maps.get(name)

    def seen_as(self, name: str) -> tuple[str, View]:
        """The tensor whose elements ``name`` has, and how they lie there: itself, once it is made."""
        moved = self._moved.get(name)
        if moved is None or name in self._arrays or name in self._maps:
            return name, view_whole(self.graph.shape(name))
        return moved.source, moved.view

    def move(self, name: str, moved: Moved) -> None:
        """``name`` is a view of another tensor, made when it is read; the region's outputs are made now."""
        self._moved[name] = moved
        if name in self.graph.outputs:
            self.array(name)

    def _make_moved(self, name: str, moved: Moved) -> None:
        source, view, is_output = moved.source, moved.view, name in self.graph.outputs
        m = self.map_alone(source) if is_output or not moved.is_reshape else None
        if m is not None and self.graph.dtype(source) == "float32":
            strides = unpack_strides(view, m)
            if strides is not None:
                y = self.define_array(name)
                self.steps.append(Unpack(note=moved.note, x=m, y=y, strides=strides))
                return
        x = self.array(source)
        if name in self._arrays:  # the source has just been made in this output
            return
        if not moved.is_reshape:
            self.steps.append(moved.copy(moved.note, x, self.define_array(name), view))
        elif is_output:
            self.steps.append(copy_whole(moved.note, x, self.define_array(name)))
        else:
            self.alias_array(name, x)

    def _array_of_map(self, name: str, m: Map) -> Array | None:
        """The map's own memory, where one pixel a channel makes both layouts the same."""
        single = m.height == m.width == 1 and m.plane == m.lanes and m.halo == NO_HALO
        single = single and m.dtype == self.graph.dtype(name)
        if single and name not in self.graph.outputs:
            return Array(m.buffer, m.offset, self.graph.shape(name), m.dtype)
        return None

    def _unpack(self, name: str, m: Map) -> Array:
        y = self.define_array(name)
        self.steps.append(
            Unpack(
                note=Note("unpack", f"unpack {name}"), x=m, y=y, strides=(m.height * m.width, m.width, 1)
            )
        )
        return y

    def map(self, name: str, bfloat16: bool | None = False) -> Map:
        """The tensor as a blocked map; packed first if its home is row-major.

        In bfloat16 or not, which may need a copy; or None: as it was made.
        """
        m = self._any_map(name)
        if bfloat16 is None or bfloat16 == (m.dtype == "bfloat16"):
            return m
        if name not in self._converted:
            dtype: DType = "bfloat16" if bfloat16 else "float32"
            shape = (m.channels, m.height, m.width)
            halo = self.halos.get(self.root(name)[0], NO_HALO)
            y = self._place("arena", make_map(0, *shape, self.lanes, halo, dtype))
            self._converted[name] = y
            self.steps.append(Convert(note=Note("convert", f"{name} in {dtype}"), x=m, y=y))
        return self._converted[name]

    def bytes_map(self, made: Dequantize) -> Map:
        """The bytes that ``made`` would dequantise, as a map whose halo holds their zero point."""
        name, zero = made.inputs[0], self._zero_of(made)
        m = self.map(name)
        if m.halo == NO_HALO or m.zero == zero:
            return m
        y = replace(self._place("arena", m), zero=zero)
        note = Note("copy", f"copy {name}, {zero} around it")
        self.steps.append(ClearHalo(note=note, y=y))
        self.steps.append(CopyChannels(note=note, x=m, y=y, y_channel=0, x_channel=0, count=m.channels))
        return y

    def cells_map(self, made: Dequantize) -> Map:
        """The same in blocks of four channels, a cell a pixel: where an image has few of them."""
        name, zero = made.inputs[0], self._zero_of(made)
        if (name, zero) not in self._cells:
            shape = image_shape(self.graph.shape(name))
            assert shape is not None
            dtype = self.graph.dtype(name)
            halo = self.halos.get(name, NO_HALO)
            y = self._place("arena", make_map(0, *shape, cell_elements(dtype), halo, dtype, zero))
            self._cells[name, zero] = y
            self._pack_into(name, y)
        return self._cells[name, zero]

    def _zero_of(self, made: Dequantize) -> int:
        return int(self.graph.constants[made.inputs[2]].item())

    def _dtype(self, name: str) -> DType:
        """The type of its elements as a blocked map."""
        return "bfloat16" if name in self.narrow else self.graph.dtype(name)

    def _any_map(self, name: str) -> Map:
        if name not in self._maps:
            shape = image_shape(self.graph.shape(name))
            assert shape is not None, f"{name} is no map"
            if name in self.graph.constants:
                return self.constant_map(name, shape)
            if name in self._moved and self._moved[name].is_reshape:
                self.array(name)
            alias = self._map_of_array(name, shape) if name in self._arrays else None
            self._maps[name] = alias or self._pack(name)
        return self._maps[name]

    def _map_of_array(self, name: str, shape: tuple[int, int, int]) -> Map | None:
        (channels, height, width), x = shape, self._arrays[name]
        if self.halos.get(name, NO_HALO) != NO_HALO:
            return None
        aligned = self.buffers[x.buffer].space == "arena" and x.offset % self.lanes == 0
        if height == width == 1 and channels % self.lanes == 0 and aligned:
            return replace(make_map(x.buffer, channels, 1, 1, self.lanes, dtype=x.dtype), offset=x.offset)
        return None

    def _pack(self, name: str) -> Map:
        y = self.define_map(name)
        self._pack_into(name, y)
        return y

    def _is_packed_from_its_source(self, name: str) -> bool:
        moved = self._moved.get(name) if name not in self._arrays else None
        if moved is None or len(moved.view.shape) != 4 or self.graph.dtype(name) != "float32":
            return False
        return goes_by_vectors(moved.view.strides[1:], moved.view.shape[3])

    def quantize_when_read(self, name: str, x: Array, scale: Scale, convert: Callable[[], Step]) -> None:
        """``name`` is x in bytes, which ``convert`` makes as an array."""
        self._rounded[name] = Rounded(x, scale, convert)

    def _pack_into(self, name: str, y: Map) -> None:
        if self._is_packed_from_its_source(name):
            moved = self._moved[name]
            x, (*_, channel, row, column) = self.array(moved.source), moved.view.strides
            note = Note("pack", f"pack {name}")
            x = replace(x, offset=x.offset + moved.view.offset)
            self.steps.append(Pack(note=note, x=x, y=y, strides=(channel, row, column)))
            return
        made = self._rounded.get(name)
        x, scale = (made.x, made.scale) if made and name not in self._arrays else (self.array(name), None)
        text = f"pack {name}, quantised" if scale else f"pack {name}"
        strides = (y.height * y.width, y.width, 1)
        self.steps.append(Pack(note=Note("pack", text), x=x, y=y, strides=strides, scale=scale))

    def planar(self, name: str) -> Map:
        """The tensor as a planar map with the halo its readers need."""
        if name not in self._planar:
            shape = image_shape(self.graph.shape(name))
            assert shape is not None
            y = make_map(0, *shape, 1, self.halos.get(name, NO_HALO), self.graph.dtype(name))
            y = self._place("arena", y)
            self._planar[name] = y
            self.steps.append(
                Pack(
                    note=Note("pad", f"pad {name}"), x=self.array(name), y=y,
                    strides=(y.height * y.width, y.width, 1),
                )
            )  # fmt: skip
        return self._planar[name]

    def define_array(self, name: str) -> Array:
        """New row-major memory for a tensor: the output itself, where it is one, be it in another shape."""
        tensor, output = self.graph.tensors[name], self._outputs.get(name, name)
        if output in self.graph.outputs:
            buffer = self._new("output", tensor.bytes, self.graph.outputs.index(output))
            self._arrays[output] = Array(buffer, 0, self.graph.shape(output), tensor.dtype)
        else:
            buffer = self._new("arena", tensor.bytes)
        self._arrays[name] = Array(buffer, 0, tensor.shape, tensor.dtype)
        return self._arrays[name]

    def define_map(self, name: str) -> Map:
        """New blocked memory for a tensor, or its range of the tensor it is a view of."""
        root, channel = self.root(name)
        shape = image_shape(self.graph.shape(name))
        assert shape is not None
        if root == name and name in self._maps:  # a concat that an operand has already opened
            return self._maps[name]
        if root != name:
            whole = self._maps.get(root) or self.define_map(root)
            offset = whole.offset + channel // self.lanes * whole.plane
            self._maps[name] = replace(whole, offset=offset, channels=shape[0])
        else:
            halo, zero = self.halos.get(name, NO_HALO), self._zeros.get(name, 0)
            m = make_map(0, *shape, self.lanes, halo, self._dtype(name), zero)
            self._maps[name] = self._place("arena", m)
        return self._maps[name]

    def define_padded(self, node: Node) -> None:
        """What a node pads with zeros: the map it pads, with some of its halo."""
        x, border = self.map(node.inputs[0]), find_border(node, self.graph)
        assert border is not None
        top, left, bottom, right = border
        up, before, down, behind = x.halo
        self._maps[node.output] = replace(
            x, offset=x.offset - top * x.row - left * x.step, height=top + x.height + bottom,
            width=left + x.width + right, halo=(up - top, before - left, down - bottom, behind - right),
        )  # fmt: skip

    def define_strip(self, name: str, height: int) -> Map:
        """New memory of each thread for ``height`` rows of a tensor, with its halo at the sides."""
        shape = image_shape(self.graph.shape(name))
        assert shape is not None
        _, left, _, right = self.halos.get(name, NO_HALO)
        m = make_map(0, shape[0], height, shape[2], self.lanes, (0, left, 0, right), self._dtype(name))
        self._maps[name] = self._place("thread", m)
        return self._maps[name]

    def scratch_array(self, *shape: int, private: bool = False, dtype: DType = "float32") -> Array:
        """Memory for a result that has no name in the graph; ``private``: of each thread its own."""
        size = math.prod(shape) * BYTES[dtype]
        return Array(self._new("thread" if private else "arena", size), 0, shape, dtype)

    def scratch_map(self, channels: int) -> Map:
        """Memory for a number of each channel, which has no name in the graph."""
        return self._place("arena", make_map(0, channels, 1, 1, self.lanes))

    def output_array(self, index: int) -> Array:
        """The memory of output number ``index``."""
        tensor = self.graph.tensors[self.graph.outputs[index]]
        return Array(self._new("output", tensor.bytes, index), 0, tensor.shape, tensor.dtype)

    def alias_array(self, name: str, x: Array) -> None:
        """``name`` is the same memory as ``x`` in another shape."""
        self._arrays[name] = replace(x, shape=self.graph.shape(name))
