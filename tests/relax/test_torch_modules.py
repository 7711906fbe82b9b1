"""Networks of PyTorch, as they are, exported and through torch.compile; in scripts/test --torch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import convoy
from convoy.errors import ModelError
from convoy.relax import exported

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
    program = torch.export.export(model, (images(2),), dynamic_shapes=shapes)
    for executable in (
        convoy.compile(model, example_inputs=(images(2),), dynamic_shapes=shapes),
        convoy.compile(program),
    ):
        assert executable.report.flops_share == 1
        runner = convoy.load(executable)
        assert isinstance(runner.inputs[0].shape[0], str)
        for count in (2, 5):
            assert error(runner.run([images(count)])[0], model, images(count)) < BOUND


class Named(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A network that is called by names, one of which is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = torch.nn.Conv2d(3, 8, 3)

    def forward(self, *, scale: Any, pixels: Any, mask: Any = None) -> Any:
        y = self.convolve(pixels) * scale
        return y if mask is None else y * mask


def test_a_module_that_is_called_by_names() -> None:
    torch.manual_seed(0)
    model = Named().eval()
    given = {"pixels": images(), "scale": torch.rand(1, 8, 1, 1)}  # not in the order of forward
    with torch.no_grad():
        wanted = model(**given).numpy()
    program = torch.export.export(model, (), given)
    for executable in (convoy.compile(model, example_inputs=given), convoy.compile(program)):
        runner = convoy.load(executable)
        assert {tensor.name for tensor in runner.inputs} == set(given)
        (found,) = runner.run(given)
        assert np.max(np.abs(found - wanted)) < BOUND * np.max(np.abs(wanted))


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
@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True, "activation": "gelu"}], ids=["plain", "other"]
)
def test_torch_compile_takes_encoders_of_transformers(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, **options)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    settle(model, torch.randn(3, 10, 32))
    x = torch.randn(3, 10, 32)
    quick = torch.compile(model, backend="convoy")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        assert error(quick(x), model, x) < BOUND


@pytest.mark.usefixtures("fresh")
def test_an_encoder_with_a_mask_stays_with_torch() -> None:
    model = torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True).eval()
    x, mask = torch.randn(3, 10, 32), torch.rand(10, 10) > 0.5
    mask.fill_diagonal_(False)
    quick = torch.compile(model, backend="convoy")
    with torch.no_grad(), pytest.warns(GraphWarning, match="a graph stays with PyTorch: import"):
        assert error(quick(x, mask), model, x, mask) < BOUND


@pytest.mark.usefixtures("fresh")
def test_torch_compile_gives_bfloat16() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Conv2d(3, 8, 3).bfloat16().eval(), images().bfloat16()
    quick = torch.compile(model, backend="convoy")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        found, wanted = quick(x), model.float()(x.float())
    assert found.dtype == torch.bfloat16
    assert (found.float() - wanted).abs().max() < 2**-8 * wanted.abs().max()


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


class Calls(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A network that calls one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def resized(**options: Any) -> Any:
    return lambda x: torch.nn.functional.interpolate(x, **options)


OTHERWISE = {
    "add with a factor": lambda x: torch.add(x, x * x, alpha=0.3),
    "subtraction with a factor": lambda x: torch.rsub(x, 3.0, alpha=2.0),
    "selu": torch.nn.functional.selu,
    "grid": lambda x: torch.nn.functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), align_corners=False),
    "nearest to a size": resized(size=(7, 31)),
    "nearest to the half": resized(scale_factor=0.5),
    "nearest exact": resized(size=(7, 31), mode="nearest-exact"),
    "antialias": resized(size=(7, 5), mode="bilinear", antialias=True),
}
"""What TVM's frontend for PyTorch computes otherwise (tvm 0.27.0)."""


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_tvms_frontend_computes_otherwise_is_pytorchs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Calls(OTHERWISE[name]).eval(), images()
    executable = convoy.compile(model, example_inputs=(x,))
    assert error(convoy.load(executable).run([x])[0], model, x) < BOUND
    monkeypatch.setattr(exported, "_has_onnx", lambda: False)
    with pytest.raises(ModelError, match="computes as PyTorch does, got another; install onnxscript"):
        convoy.compile(model, example_inputs=(x,))


@pytest.mark.parametrize(
    "function",
    [
        resized(scale_factor=2.0),
        resized(size=(7, 31), mode="bilinear"),
        lambda x: torch.add(x, x),
        lambda x: torch.nn.functional.elu(x, 0.3),
    ],
    ids=["nearest to the double", "bilinear", "add", "elu"],
)
def test_what_it_computes_alike_needs_no_onnx(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported, "_has_onnx", lambda: False)
    model, x = Calls(function).eval(), images()
    executable = convoy.compile(model, example_inputs=(x,))
    assert error(convoy.load(executable).run([x])[0], model, x) < BOUND


def test_a_divisor_of_an_average_is_refused() -> None:
    model = Calls(lambda x: torch.nn.functional.avg_pool2d(x, 3, divisor_override=5)).eval()
    with pytest.raises(ModelError, match="expected the average of a window, got divisor_override=5"):
        convoy.compile(model, example_inputs=(images(),))


NETWORKS = (
    "alexnet", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5", "mobilenet_v3_small",
    "regnet_y_400mf", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1",
)  # fmt: skip
"""Networks of torchvision."""
OTHERS = (
    "botnet26t_256", "convnext_atto", "deit_tiny_patch16_224", "edgenext_xx_small", "efficientformer_l1",
    "ghostnet_100", "hrnet_w18_small", "levit_128s", "mixer_s32_224", "mobilenetv4_conv_small",
    "mobilevit_xxs", "poolformer_s12", "pvt_v2_b0", "repvgg_a0",
)  # fmt: skip
"""Networks of timm."""
ATTENTION = {
    "botnet26t_256", "deit_tiny_patch16_224", "edgenext_xx_small", "efficientformer_l1", "levit_128s",
    "mobilevit_xxs", "pvt_v2_b0",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NETWORKS, *OTHERS])
def test_real_networks_agree_with_torch(name: str) -> None:
    library = "torchvision.models" if name in NETWORKS else "timm"
    package = pytest.importorskip(library, reason=f"{library} is not installed")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # GoogLeNet's, of how it draws its weights
        model = getattr(package, name)() if name in NETWORKS else package.create_model(name)
    side = getattr(model, "default_cfg", {"input_size": (3, 224, 224)})["input_size"][-1]
    x = torch.randn(4, 3, side, side)
    settle(model, x)
    x = x[:1]
    executable = convoy.compile(model, example_inputs=(x,))
    assert executable.report.flops_share > 0.99
    kernels = [step for region in executable.report.regions for step in region.steps]
    assert any("attention" in step for step in kernels) == (name in ATTENTION)
    assert error(convoy.load(executable).run([x])[0], model, x) < BOUND


def settle(model: Any, x: Any) -> None:
    """Draw the weights that are next to nothing, and give batch norms the statistics of ``x``.

    Heads and scales of layers are zeros, or nearly so, before a training, and what passes many batch norms
    vanishes or grows: the answer is all zeros, or does not depend on the input.
    """
    for weight in model.parameters():
        if weight.abs().max() < 1e-3:
            torch.nn.init.normal_(weight, std=0.1)
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0
            module.train()
    with torch.no_grad():
        model(x)
    model.eval()
