"""AffineGrid as a product; ONNX's own definition has steps that need every size."""

from __future__ import annotations

from convoy.relax.importer.bodies.call import Call


def affine_grid(call: Call) -> str | None:
    """Where an image or a volume is read for each place of the result: the places times a matrix."""
    matrix = call.shape_with_open(0)
    if matrix is None or len(matrix) != 3 or matrix[1:] not in ((2, 3), (3, 4)):
        return None
    rank = matrix[1] or 0
    corners = bool(call.attribute("align_corners", 0))
    places = "\n".join(_places(axis, rank, corners) for axis in range(rank))
    names = ", ".join(f"along{axis}" for axis in reversed(range(rank)))
    return f"""(theta, size) => (grid) {{
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        last = Constant <value_ints = [-1]> ()
        first = Constant <value_ints = [0]> ()
        second = Constant <value_ints = [1]> ()
        third = Constant <value_ints = [2]> ()
        end = Constant <value_ints = [{rank + 2}]> ()
        coordinates = Constant <value_ints = [{rank}]> ()
        flat = Constant <value_ints = [-1, {rank + 1}]> ()
        whole = Constant <value = float {{1}}> ()
        both = Constant <value = float {{2}}> ()
        unit = CastLike (whole, theta)
        span = CastLike (both, theta)
        space = Slice (size, third, end)
        images = Slice (size, first, second)
        {places}
        ones = Add (along0, unit)
        units = Sub (ones, along0)
        points = Concat <axis = -1> ({names}, units)
        rows = Reshape (points, flat)
        turned = Transpose <perm = [0, 2, 1]> (theta)
        moved = MatMul (rows, turned)
        shape = Concat <axis = 0> (images, space, coordinates)
        grid = Reshape (moved, shape)
    }}"""


def _places(axis: int, rank: int, corners: bool) -> str:
    """Places along one axis, from -1 to 1: of pixels' centres, or from corner to corner."""
    shape = [1] * rank + [1]
    shape[axis] = -1
    scale = (
        f"""fewer{axis} = Sub (size{axis}, one)
        some{axis} = Max (fewer{axis}, one)
        steps{axis} = CastLike (some{axis}, theta)
        far{axis} = Mul (at{axis}, span)"""
        if corners
        else f"""steps{axis} = CastLike (size{axis}, theta)
        twice{axis} = Mul (at{axis}, span)
        far{axis} = Add (twice{axis}, unit)"""
    )
    return f"""
        axis{axis} = Constant <value_int = {axis + 2}> ()
        size{axis} = Gather (size, axis{axis})
        range{axis} = Range (zero, size{axis}, one)
        at{axis} = CastLike (range{axis}, theta)
        {scale}
        share{axis} = Div (far{axis}, steps{axis})
        from{axis} = Sub (share{axis}, unit)
        shape{axis} = Constant <value_ints = {shape}> ()
        line{axis} = Reshape (from{axis}, shape{axis})
        lengths{axis} = Concat <axis = 0> (space, second)
        along{axis} = Expand (line{axis}, lengths{axis})"""
