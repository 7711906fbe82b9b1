"""Networks of PyTorch, as they are, exported and through torch.compile; in scripts/test --torch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import convoy
from convoy.errors import ModelError

torch = pytest.importorskip("torch", reason="torch is not installed: scripts/test --torch has it")

from convoy.torch import GraphWarning  # noqa: E402  only where there is torch

BOUND = 1e-4


def network() -> Any:
    nn = torch.nn
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 5)).eval()


def images(count: int = 1) -> Any:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(count))


def error(found: Any, model: Any, *inputs: Any) -> float:
    with torch.no_grad():
        wanted = model(*inputs).numpy()
    return float(np.max(np.abs(np.asarray(found) - wanted)) / np.max(np.abs(wanted)))


def test_a_module_with_example_inputs() -> None:
    model, x = network(), images()
    executable = convoy.compile(model, example_inputs=(x,), strict=True)
    runner = convoy.load(executable)
    assert runner.inputs[0].shape == (1, 3, 12, 12)
    assert error(runner.run([x])[0], model, x) < BOUND
    assert error(runner.run([x.numpy()])[0], model, x) < BOUND
    assert error(runner.run([x.requires_grad_()])[0], model, x.detach()) < BOUND


def test_a_batch_that_stays_open() -> None:
    model = network()
    shapes = ({0: torch.export.Dim("batch", min=2, max=64)},)
    exported = torch.export.export(model, (images(2),), dynamic_shapes=shapes)
    for executable in (
        convoy.compile(model, example_inputs=(images(2),), dynamic_shapes=shapes),
        convoy.compile(exported),
    ):
        assert executable.report.flops_share == 1
        runner = convoy.load(executable)
        assert isinstance(runner.inputs[0].shape[0], str)
        for count in (2, 5):
            assert error(runner.run([images(count)])[0], model, images(count)) < BOUND


def test_a_tensor_is_read_where_it_lies() -> None:
    from convoy.deploy.tensors import lent

    x = images()
    assert lent("x", x, 64).data_ptr() == x.data_ptr()
    assert lent("x", x.transpose(2, 3), 64).data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    ("given", "options", "problem"),
    [
        (lambda: network(), {}, r"Sequential: expected example_inputs, got NoneType; write convoy.compile"),
        (lambda: network().train(), {"example_inputs": (images(),)}, "got one in training; call its eval"),
        (lambda: network(), {"example_inputs": (images().double(),)}, "that torch.export can export, got"),
        (
            lambda: torch.export.export(network(), (images(),)),
            {"example_inputs": (images(),)},
            "expected neither example_inputs nor dynamic_shapes",
        ),
    ],
    ids=["no inputs", "training", "double", "program with inputs"],
)
def test_what_does_not_fit_is_one_line(given: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        convoy.compile(given(), **options)


@pytest.fixture
def fresh() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh")
def test_torch_compile_finds_the_backend_and_takes_every_batch() -> None:
    assert "convoy" in torch._dynamo.list_backends()
    model = network()
    quick = torch.compile(model, backend="convoy")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        for count in (1, 4, 7, 4):
            assert error(quick(images(count)), model, images(count)) < BOUND


@pytest.mark.usefixtures("fresh")
def test_a_graph_for_training_stays_with_torch() -> None:
    model = network()
    quick = torch.compile(model, backend="convoy")
    with pytest.warns(GraphWarning, match="gradients are wanted"):
        quick(images()).sum().backward()
    assert model[0].weight.grad is not None


@pytest.mark.usefixtures("fresh")
def test_a_graph_that_does_not_compile_stays_with_torch() -> None:
    def invert(x: Any) -> Any:
        return torch.linalg.inv(x)

    quick = torch.compile(invert, backend="convoy")
    with (
        torch.no_grad(),
        pytest.warns(GraphWarning, match="a graph stays with PyTorch: import"),
    ):
        assert error(quick(images()), invert, images()) < BOUND


NETWORKS = ("resnet18", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5", "efficientnet_b0")
"""Networks of torchvision."""
OTHERS = ("vit_tiny_patch16_224", "convnext_atto", "mobilevit_xxs")
"""Networks of timm."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NETWORKS, *OTHERS])
def test_real_networks_agree_with_torch(name: str) -> None:
    library = "torchvision.models" if name in NETWORKS else "timm"
    package = pytest.importorskip(library, reason=f"{library} is not installed")
    torch.manual_seed(0)
    make = getattr(package, name) if name in NETWORKS else lambda: package.create_model(name)
    model = make().eval()
    side = 256 if name == "mobilevit_xxs" else 224
    x = torch.randn(1, 3, side, side)
    executable = convoy.compile(model, example_inputs=(x,))
    assert executable.report.flops_share > 0.99
    kernels = [step for region in executable.report.regions for step in region.steps]
    assert any("attention" in step for step in kernels) == ("vit" in name)
    assert error(convoy.load(executable).run([x])[0], model, x) < BOUND
