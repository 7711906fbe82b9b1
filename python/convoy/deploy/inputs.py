"""The inputs of a call beside what the library says it takes: their order, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from convoy.deploy.description import Description, Tensor, Version
from convoy.errors import ModelError
from convoy.graph.written_sizes import compute_size, names_of
from convoy.text import line

Value = TypeVar("Value")


def order_by_name(names: Sequence[str], given: Mapping[str, Value]) -> list[Value]:
    """The values of these names, in the order of a call.

    Raises
    ------
    ModelError
        If one is missing, or has a name that no input has.
    """
    try:
        found = [given[name] for name in names]
        if len(given) == len(names):  # asked last: what makes its values as they are asked for has grown
            return found
    except KeyError:
        pass
    problem = f"expected {', '.join(names) or 'none'}, got {', '.join(map(str, given)) or 'none'}"
    missing = [name for name in names if name not in given]
    unknown = [str(name) for name in given if name not in names]
    said = ((missing, "missing"), (unknown, "no input of the model"))
    wrong = "; ".join(f"{what}: {', '.join(found)}" for found, what in said if found)
    raise ModelError(
        "run", "inputs", line(f"{problem} ({wrong})"), "give each input of the model by its name"
    )


def explain_misfit(says: Description, given: Sequence[Any]) -> ModelError | None:
    """What is wrong with these inputs; None: nothing that the library speaks of.

    Parameters
    ----------
    given : Sequence[Any]
        Anything with a shape and a dtype, in the order of a call.
    """
    if len(given) != len(says.inputs):
        return ModelError(
            "run",
            "inputs",
            f"expected {len(says.inputs)} ({'; '.join(map(str, says.inputs)) or 'none'}), got {len(given)}",
            "give each input of the model once",
        )
    misfit = find_misfit(says.inputs, given)
    if misfit is None and says.versions:
        return _explain_versions(says.versions, given)
    return misfit


def find_misfit(
    tensors: Sequence[Tensor], given: Sequence[Any], *, written: bool = True
) -> ModelError | None:
    """The first input of another type, rank or size than its tensor's, as an error.

    Parameters
    ----------
    written : bool
        Do sizes that are written in terms of others, as ``2 * t``, have those values?
    """
    met: dict[str, tuple[int, str]] = {}
    for tensor, array in zip(tensors, given, strict=True):
        dtype, sizes = str(array.dtype), [int(size) for size in array.shape]
        problem = f"expected {_form(tensor)}, got {dtype} {sizes}"
        if tensor.dtype and dtype != tensor.dtype:
            return ModelError("run", line(tensor.name), problem, f"convert it to {tensor.dtype}")
        if tensor.shape is None:
            continue
        remedy = "give it in this shape, or compile the model for that one"
        if len(sizes) != len(tensor.shape):
            return ModelError("run", line(tensor.name), problem, remedy)
        for expected, size in zip(tensor.shape, sizes, strict=True):
            if isinstance(expected, int) and size != expected:
                return ModelError("run", line(tensor.name), problem, remedy)
            name = expected if isinstance(expected, str) and expected.isidentifier() else None
            if name is not None and size != met.setdefault(name, (size, tensor.name))[0]:
                return _disagreement(tensor, problem, {name: met[name]})
    return _find_written_misfit(tensors, given, met) if written else None


def _find_written_misfit(
    tensors: Sequence[Tensor], given: Sequence[Any], met: Mapping[str, tuple[int, str]]
) -> ModelError | None:
    """The first input of another size than is written in terms of other inputs' sizes."""
    values = {name: size for name, (size, _) in met.items()}
    for tensor, array in zip(tensors, given, strict=True):
        sizes = [int(size) for size in array.shape]
        for said, size in zip(tensor.shape or (), sizes, strict=False):
            text = said if isinstance(said, str) else ""
            if compute_size(text, values) not in (None, size):
                problem = f"expected {_form(tensor)}, got {array.dtype} {sizes}"
                return _disagreement(tensor, problem, {name: met[name] for name in names_of(text)})
    return None


def _disagreement(tensor: Tensor, problem: str, known: Mapping[str, tuple[int, str]]) -> ModelError:
    """That an input has a size other than others say."""
    said = " and ".join(f"{name} = {size} as in {where}" for name, (size, where) in known.items())
    problem = problem.replace(", got", f"{line(f', with {said}')}, got", 1)
    return ModelError("run", line(tensor.name), problem, "give sizes that agree")


def _explain_versions(versions: Sequence[Version], given: Sequence[Any]) -> ModelError | None:
    """That a library of several sizes has no version for these."""
    if any(find_misfit(version.inputs, given) is None for version in versions):
        return None
    differ = [
        i
        for i, of in enumerate(zip(*(version.inputs for version in versions), strict=True))
        if len(set(of)) > 1
    ]
    names = [line(tensor.name) for tensor in versions[0].inputs]
    sizes = "; ".join(
        ", ".join(_size(names[i], version.inputs[i].shape or ()) for i in differ) for version in versions
    )
    found = ", ".join(_size(names[i], given[i].shape) for i in differ)
    return ModelError(
        "run",
        "inputs",
        f"expected one of the sizes {sizes}, got {found}",
        "give one of these, or compile the model with this one, too",
    )


def _size(name: str, shape: Sequence[object]) -> str:
    """Name and shape, as ``--shape`` takes them: ``x=1x3x224x224``."""
    return f"{name}={'x'.join('?' if size is None else str(size) for size in shape)}"


def _form(tensor: Tensor) -> str:
    """Type and shape, as ``float32 [n, 3, 224, 224]``."""
    return str(tensor).removeprefix(f"{line(tensor.name)}: ")
