"""Regions are convex, acyclic and maximal; and which are worth their call."""

from __future__ import annotations

import itertools
import random as stdlib_random

import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

from convoy.offload.work import count_flops
from convoy.relax import partition
from convoy.relax.dataflow import Dataflow
from convoy.relax.reader import BlockReader
from convoy.relax.regions import Region, grow_regions
from convoy.report.decision import Report
from relax.sketch import KEEP_ALL, Cut, compare, const, random, weight

IMAGE = (1, 4, 8, 8)
AT = BlockReader(Dataflow(relax.DataflowBlock([])))


def conv(x, seed=0):
    return op.nn.conv2d(x, weight(4, 4, 3, 3, seed=seed), padding=1)


# The graph algorithm -------------------------------------------------------------------------------


def find_cycle(reads: list[list[int]], regions: list[Region]) -> bool:
    """Is there a cycle between the regions?"""
    at = {node: i for i, region in enumerate(regions) for node in region.nodes}
    needs = [{at[r] for n in region.nodes for r in reads[n]} - {i} for i, region in enumerate(regions)]
    left = set(range(len(regions)))
    while left:
        ready = {i for i in left if not needs[i] & left}
        if not ready:
            return True
        left -= ready
    return False


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_give_maximal_acyclic_regions_in_order(seed):
    rng = stdlib_random.Random(seed)
    count = rng.randint(2, 14)
    reads = [sorted(rng.sample(range(i), min(i, rng.randint(0, 3)))) for i in range(count)]
    choices = [frozenset("a"), frozenset("b"), frozenset("ab"), frozenset[str]()]
    labels = [rng.choice(choices) for _ in range(count)]
    regions = grow_regions(reads, labels)
    done: set[int] = set()
    for region in regions:
        assert all(r in done or r in region.nodes for n in region.nodes for r in reads[n])
        done.update(region.nodes)
        assert len(region.nodes) == 1 or region.labels
        assert all(region.labels <= labels[n] for n in region.nodes)
    assert done == set(range(count))
    for a, b in itertools.combinations(regions, 2):
        touch = any(r in b.nodes for n in a.nodes for r in reads[n]) or any(
            r in a.nodes for n in b.nodes for r in reads[n]
        )
        if touch and a.labels & b.labels:
            rest = [region for region in regions if region not in (a, b)]
            assert find_cycle(reads, [*rest, Region(a.nodes + b.nodes, frozenset())])


def test_nodes_join_by_a_late_label_where_no_other_is_left():
    # a late one between two that have another in common does not keep these apart
    labels = [frozenset("l"), frozenset("al"), frozenset("a")]
    reads = [[], [0], [1]]
    assert [r.nodes for r in grow_regions(reads, labels, late="l")] == [(0,), (1, 2)]
    assert [r.nodes for r in grow_regions(reads[:2], labels[:2], late="l")] == [(0, 1)]
    assert [r.nodes for r in grow_regions(reads, labels)] == [(0, 1), (2,)]  # the twin


# Modules -------------------------------------------------------------------------------------------


def test_conv_host_op_add_gives_two_regions():
    # conv2d -> sinh (host) -> add conv2d  =>  two regions around sinh, no cycle
    def make(bind, x):
        y = bind(conv(x))
        return bind(op.add(bind(op.sinh(y)), bind(conv(y, seed=1))))

    cut = Cut(make, IMAGE)
    assert cut.left == ["sinh"]
    assert sorted(cut.composites) == [["conv2d"], ["conv2d_add"]]


def test_skip_through_a_host_op_splits_instead_of_a_cycle():
    # y = conv2d + b; sinh(y) (host) + y -> conv2d  =>  two regions; the first conv2d once
    def make(bind, x):
        y = bind(op.add(bind(conv(x)), weight(1, 4, 1, 1)))
        return bind(conv(bind(op.add(bind(op.sinh(y)), y)), seed=1))

    cut = Cut(make, IMAGE)
    assert sorted(cut.composites) == [["add", "conv2d"], ["conv2d_bias"]]
    assert cut.left == ["sinh"]


def test_a_residual_stays_in_one_region():
    # x -> conv2d -> relu -> conv2d -> add x -> relu  =>  one region
    def make(bind, x):
        y = bind(conv(bind(op.nn.relu(bind(conv(x)))), seed=1))
        return bind(op.nn.relu(bind(op.add(y, x))))

    cut = Cut(make, IMAGE)
    assert cut.composites == [["conv2d_relu", "conv2d_add_relu"]]
    compare(cut, random(*IMAGE))


def test_a_region_may_have_several_inputs_and_outputs():
    # conv2d(a) -> (out, add conv2d(b) -> out)  =>  one region of two inputs and outputs
    def make(bind, a, b):
        y = bind(conv(a))
        return [y, bind(op.add(y, bind(op.nn.relu(bind(conv(b, seed=1))))))]

    cut = Cut(make, IMAGE, IMAGE)
    assert len(cut.functions) == 1
    assert (len(cut.graph.inputs), len(cut.graph.outputs)) == (2, 2)
    compare(cut, random(*IMAGE), random(*IMAGE, seed=1))


def test_siblings_of_a_host_value_share_a_region():
    # sinh (host) -> (conv2d -> cosh, conv2d -> cosh)  =>  one region of two convs
    def make(bind, x):
        y = bind(op.sinh(x))
        return [bind(op.cosh(bind(conv(y, seed=seed)))) for seed in (0, 1)]

    assert Cut(make, IMAGE).composites == [["conv2d", "conv2d"]]


def test_renamings_are_seen_through():
    # y = conv2d; z = y; relu(z)  =>  conv2d_relu
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(conv(x))
            z = relax.DataflowVar("z", y.ty)
            builder.emit_normalized(relax.VarBinding(z, y))
            result = builder.emit_output(op.nn.relu(z))
        builder.emit_func_output(result)
    module = partition()(builder.get())
    relax.analysis.well_formed(module)
    (function,) = (f for v, f in module.functions_items() if v.name_hint != "main")
    assert "convoy.conv2d_relu" in function.script()


def test_a_small_region_without_a_heavy_op_is_given_back():
    # relu of 1 KB  =>  left, with the reason; of 64 KB  =>  taken
    small = Cut(lambda bind, x: bind(op.nn.relu(x)), IMAGE)
    assert small.left == ["nn.relu"]
    assert small.reasons == [
        "given back: a region of one op moving 2048 bytes, expected 65536 or a heavy op "
        "to be worth its call"
    ]
    assert Cut(lambda bind, x: bind(op.nn.relu(x)), (1, 4, 64, 32)).composites == [["relu"]]


def test_reshapes_alone_are_given_back_at_any_size():
    cut = Cut(lambda bind, x: bind(op.reshape(x, (1, -1))), (1, 64, 64, 64))
    assert cut.left == ["reshape"]


def test_split_items_given_back_compute_the_split_once():
    # sinh -> split -> (out, out)  =>  untouched
    def make(bind, x):
        parts = bind(op.split(bind(op.sinh(x)), 2, 1))
        return [bind(op.cosh(bind(relax.TupleGetItem(parts, i)))) for i in (0, 1)]

    cut = Cut(make, IMAGE)
    assert cut.left.count("split") == 1
    assert not cut.functions


def test_the_name_is_a_hash_of_the_content():
    # same structure, other weights  =>  another name; the same twice  =>  one function
    def twins(second):
        def make(bind, x):
            a = bind(op.sinh(bind(conv(x))))
            return bind(op.sinh(bind(conv(a, seed=second))))

        return Cut(make, IMAGE)

    assert len(twins(0).functions) == 1
    assert len(twins(1).functions) == 2
    assert set(twins(0).functions) < set(twins(1).functions)
    (name,) = twins(0).functions
    assert len(name) == len("convoy_") + 16


def test_functions_of_other_codegens_are_left_alone():
    module = Cut(lambda bind, x: bind(conv(x)), IMAGE).module
    again = partition()(module)
    assert all(again[v.name_hint].same_as(f) for v, f in module.functions_items() if v.name_hint != "main")
    tvm.ir.assert_structural_equal(again, module)


def test_flops_are_counted_by_side():
    # conv2d (taken) -> sinh (host)
    cut = Cut(lambda bind, x: bind(op.sinh(bind(conv(x)))), IMAGE)
    assert cut.report.flops_offloaded == 2 * 256 * 4 * 9
    assert cut.report.flops_total == cut.report.flops_offloaded + 256


@pytest.mark.parametrize(
    ("data", "kernel", "shape", "weights"),
    [
        ("NCHW", "OIHW", (1, 6, 8, 8), (10, 3, 3, 3)),  # two groups
        ("NHWC", "HWIO", (1, 8, 8, 6), (3, 3, 3, 10)),
        ("NHWC", "OHWI", (1, 8, 8, 6), (10, 3, 3, 3)),
    ],
)
def test_flops_of_a_convolution_in_any_layout(data, kernel, shape, weights):
    x, w = relax.Var("x", R.Tensor(shape, "float32")), relax.Var("w", R.Tensor(weights, "float32"))
    layouts = {"data_layout": data, "kernel_layout": kernel}
    call = relax.BlockBuilder().normalize(op.nn.conv2d(x, w, padding=1, groups=2, **layouts))
    assert count_flops(call, AT) == 2 * 8 * 8 * 10 * 3 * 9


def test_flops_of_a_convolution_of_unknown_shape_are_none():
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=4))
    call = relax.BlockBuilder().normalize(op.nn.conv2d(x, weight(4, 4, 3, 3)))
    assert count_flops(call, AT) == 0
    left = Cut(lambda bind, x: bind(op.nn.conv2d(x, weight(4, 4, 3, 3))), x.ty)
    assert left.report.flops_total == 0


def test_flops_of_a_long_filter_over_open_samples_are_some():
    # 512 taps over n samples: of 320, the likely length of an image, nothing would be left
    n = tvm.tirx.Var("n", "int64")
    signal = relax.TensorType(relax.ShapeExpr([1, 1, n]), "float32")
    report = Cut(lambda bind, x: bind(op.nn.conv1d(x, weight(4, 1, 512))), signal).report
    assert report.flops_total == report.flops_offloaded == 2 * 4 * 512 * (640 - 511)


def test_flops_of_a_transposed_convolution():
    x, w = (
        relax.Var("x", R.Tensor((1, 6, 8, 8), "float32")),
        relax.Var("w", R.Tensor((6, 5, 3, 3), "float32")),
    )
    call = relax.BlockBuilder().normalize(op.nn.conv2d_transpose(x, w, strides=2, groups=2))
    assert count_flops(call, AT) == 2 * 8 * 8 * 6 * 5 * 9


def test_ops_in_branches_and_outside_of_dataflow_are_left_with_a_reason():
    # the nodes of a module written in TVMScript are known by their variables; their spans name a file
    w = weight(4, 4, 3, 3)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(IMAGE, "float32"), flag: R.Tensor((), "bool")) -> R.Tensor(IMAGE, "float32"):
            before = R.nn.conv2d(x, w, padding=1)
            if flag:
                positive = R.nn.relu(before)
                y = positive
            else:
                y = R.sinh(before)
            return y

    report = Report()
    tvm.ir.assert_structural_equal(partition(report=report)(Module), Module)
    assert [(d.node, d.reason.partition(",")[0]) for d in report.refusals] == [
        ("nn.conv2d before", "expected an op in a dataflow block"),
        ("nn.relu positive", "expected an op of the function itself"),
        ("sinh y_else", "expected an op of the function itself"),
    ]
    assert report.flops_total > report.flops_offloaded == 0


def test_an_op_with_an_effect_is_not_told_to_go_into_a_block_of_dataflow():
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main(x: R.Tensor(IMAGE, "float32")) -> R.Tensor(IMAGE, "float32"):
            shown = R.print(format="seen")  # noqa: F841
            return R.sinh(x)

    report = Report()
    partition(report=report)(relax.transform.ConvertToDataflow(min_size=1)(Module))
    assert (
        "print shown",
        "expected an op that computes and does nothing else, got one with an effect",
    ) in [(d.node, d.reason) for d in report.refusals]


def test_ops_of_functions_inside_others_are_left_with_a_reason():
    w = weight(8, 8)
    kind = R.Tensor((4, 8), "float32")

    @I.ir_module
    class Module:
        @R.function
        def main(x: kind) -> kind:
            with R.dataflow():

                @R.function
                def inner(z: kind) -> kind:
                    product = R.matmul(z, w)
                    return R.nn.relu(product)

                y = inner(x)
                R.output(y)

            @R.function
            def outer(z: kind) -> kind:
                return R.sinh(z)

            return outer(y)

    report = Report()
    tvm.ir.assert_structural_equal(partition(report=report)(Module), Module)
    left = [d.node.split()[0] for d in report.refusals if "one of a function inside another" in d.reason]
    assert left == ["matmul", "nn.relu", "sinh"]
    assert report.flops_total > report.flops_offloaded == 0


# Axis 0 --------------------------------------------------------------------------------------------

n = tvm.tirx.Var("n", "int64")


@pytest.mark.parametrize(("images", "batch"), [(1, 1), (3, 3), (n, None)])
def test_images_stay_outside_of_the_graph(images, batch):
    # conv2d -> relu -> flatten -> matmul on N images  =>  a graph of one
    def make(bind, x):
        y = bind(op.nn.relu(bind(conv(x))))
        return bind(op.matmul(bind(op.reshape(y, (images, 256))), weight(256, 5)))

    cut = Cut(make, (images, 4, 8, 8))
    assert cut.composites == [["conv2d_relu", "reshape", "matmul"]]
    assert cut.graph.batch == batch
    assert cut.graph.shape(cut.graph.inputs[0]) == IMAGE
    if batch:
        compare(cut, random(batch, *IMAGE[1:]))


def test_other_symbols_on_axis_0_do_not_mix():
    # conv2d of n, of m and of 1 images  =>  three regions
    m = tvm.tirx.Var("m", "int64")

    def make(bind, *images):
        return [bind(conv(x, seed)) for seed, x in enumerate(images)]

    assert Cut(make, (n, 4, 8, 8), (m, 4, 8, 8), IMAGE).composites == [["conv2d"]] * 3


@pytest.mark.parametrize("name", ["concat", "sum", "softmax", "permute_dims", "to one number"])
def test_ops_on_axis_0_are_lifted(name):
    # an op along axis 0  =>  the same along axis 1 of tensors with a 1 in front
    makes = {
        "concat": lambda bind, x: bind(op.concat([x, bind(op.nn.relu(x))], 0)),
        "sum": lambda bind, x: bind(op.sum(x, [0])),
        "softmax": lambda bind, x: bind(op.nn.softmax(x, 0)),
        "permute_dims": lambda bind, x: bind(op.permute_dims(x)),
        "to one number": lambda bind, x: bind(
            op.sqrt(bind(op.sum(bind(op.square(x)), [0, 1], keepdims=True)))
        ),
    }
    cut = Cut(makes[name], (128, 200))
    assert cut.left == []
    compare(cut, random(128, 200))


def test_an_op_on_axis_0_joins_a_convolution_of_one_image():
    # conv2d -> [1, 2, 4, 64] -> [2, 1, 64, 4] -> split along axis 0  =>  one region
    def make(bind, x):
        y = bind(op.reshape(bind(conv(x)), (1, 2, 2, 64)))
        halves = bind(op.split(bind(op.permute_dims(y, (1, 0, 3, 2))), 2, 0))
        first, second = (bind(relax.TupleGetItem(halves, i)) for i in (0, 1))
        return bind(op.add(first, bind(op.nn.softmax(second, 0))))

    cut = Cut(make, IMAGE)
    assert (len(cut.functions), cut.left) == (1, [])
    compare(cut, random(*IMAGE))


def test_a_conv_and_an_op_that_mixes_images_are_two_regions():
    # conv2d of 2 images -> max over the images
    def make(bind, x):
        return bind(op.max(bind(conv(x)), [0]))

    cut = Cut(make, (2, 4, 8, 8), options=KEEP_ALL)
    assert len(cut.functions) == 2
    assert Cut(make, (2, 4, 8, 8)).left == ["max"]


@pytest.mark.parametrize(("images", "regions"), [(1, 1), (4, 2), (n, 2)])
def test_a_matrix_that_is_computed_has_no_images(images, regions):
    # conv2d of N images -> [N, 4] @ [4, 3]: rows of a matrix that all share are no images, be they as many
    def make(bind, x, y):
        z = bind(op.mean(bind(conv(x)), [2, 3]))
        return bind(op.matmul(z, bind(op.nn.relu(y))))

    cut = Cut(make, (images, 4, 8, 8), (4, 3))
    assert (len(cut.functions), cut.left) == (regions, [])


@pytest.mark.parametrize("images", [1, 3, n])
def test_products_of_images_are_a_graph_of_one(images):
    # conv2d -> x [N, 4, 64] @ xT  =>  one region, a product of one image
    def make(bind, x):
        y = bind(op.reshape(bind(conv(x)), (images, 4, 64)))
        return bind(op.matmul(y, bind(op.permute_dims(y, (0, 2, 1)))))

    cut = Cut(make, (images, 4, 8, 8))
    assert cut.left == []
    batch = None if images is n else images
    assert cut.graph.batch == batch
    if batch:
        compare(cut, random(batch, *IMAGE[1:]))


def test_a_constant_per_image_is_no_constant_for_all():
    # conv2d of 2 images -> add [2, 4, 8, 8] constant  =>  two composites of different regions
    def make(bind, x):
        return bind(op.add(bind(conv(x)), const(random(2, 4, 8, 8))))

    cut = Cut(make, (2, 4, 8, 8), options=KEEP_ALL)
    assert sorted(cut.composites) == [["add"], ["conv2d"]]


# Sizes that a call finds ---------------------------------------------------------------------------


@pytest.mark.parametrize("found", [True, False], ids=["a cast finds it", "an input has it"])
def test_a_region_reads_a_size_behind_the_cast_that_finds_it(found: bool) -> None:
    bb, rows = relax.BlockBuilder(), tvm.tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    k = relax.Var("k", relax.TensorType((1,), "int64"))
    z = relax.Var("z", relax.TensorType((rows,), "int64"))
    with bb.function("main", [x, k] if found else [x, k, z]):
        with bb.dataflow():
            made = bb.emit(conv(x))
            bb.match_cast(bb.emit(op.tensor_to_shape(k)), relax.ShapeType([rows]))
            ones = bb.emit(op.ones(relax.ShapeExpr([1, 4, rows, 8]), "float32"))
            y = bb.emit_output(bb.emit(op.concat([made, ones], axis=2)))
        bb.emit_func_output(y)
    (block,) = partition()(bb.get())["main"].body.blocks
    (cast,) = (i for i, binding in enumerate(block.bindings) if isinstance(binding, relax.MatchCast))
    (region,) = (i for i, binding in enumerate(block.bindings) if "convoy_" in str(binding.value))
    assert (cast < region) == found  # a check of a size that is known is in nobody's way
