"""Real networks with seeded weights, for demos, tests and benchmarks: no download."""

from __future__ import annotations

from pathlib import Path

import onnx

from convoy.errors import ModelError
from convoy.zoo.built import BUILT
from convoy.zoo.light import load_light
from convoy.zoo.outputs import strip_softmax, with_inner_outputs
from convoy.zoo.weights import fill_weightless

__all__ = ["built_names", "load", "names", "strip_softmax", "with_inner_outputs"]

_LIGHT = {
    "alexnet": "bvlc_alexnet",
    "densenet121": "densenet121",
    "inception_v1": "inception_v1",
    "inception_v2": "inception_v2",
    "resnet50": "resnet50",
    "shufflenet": "shufflenet",
    "squeezenet": "squeezenet",
    "vgg19": "vgg19",
    "zfnet512": "zfnet512",
}
"""Names of the light models in the ``onnx`` package."""

_WEIGHTLESS = (
    "resnet18", "resnext50", "mobilenet_v2", "mnasnet", "efficientnet_b0", "deeplabv3", "unet",
)  # fmt: skip
"""Graphs that ship with Convoy: nodes, shapes, and how to fill the weights.

The batch-norm gammas of efficientnet_b0, 0.75 to 1.3, and of deeplabv3 (on MobileNetV3), 0.6 to 1.1, are
larger than those of the others: squeeze-excite gates halve every block's signal, and with 0.5 to 1 the
answer depends on the input by 1e-5 or 0.6 % only, so that no error would show.
"""


def names() -> list[str]:
    """The convolutional networks on images."""
    return [*_LIGHT, *_WEIGHTLESS]


def built_names() -> list[str]:
    """The other networks: of attention, recurrent, on volumes, detectors."""
    return list(BUILT)


def load(name: str) -> onnx.ModelProto:
    """A network with its weights, the same on every machine.

    Raises
    ------
    ModelError
        If there is no network of that name.
    """
    if not isinstance(name, str):
        found = f"an object of type {type(name).__name__}"
        raise ModelError(
            "zoo",
            "name",
            f"expected one of {', '.join([*names(), *built_names()])}, got {found}",
            "name one",
        )
    if name in _LIGHT:
        return load_light(_LIGHT[name])
    if name in _WEIGHTLESS:
        model = onnx.load(Path(__file__).parent / "graphs" / f"{name}.onnx")
        fill_weightless(model)
        return model
    if name in BUILT:
        return BUILT[name]()
    raise ModelError(
        "zoo",
        name,
        f"expected one of {', '.join([*names(), *built_names()])}, got {name!r}",
        "name one of them",
    )
