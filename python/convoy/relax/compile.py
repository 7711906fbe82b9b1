"""The road from a model to TVM's executable; read ``road`` first.

Two ways lead onto it: ``compile``, and TVM's own ``tvm.compile`` with a target whose keys contain
``convoy`` (``relax/door.py``).  The neutral half of the road is ``backend.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, Sequential, module_pass
from tvm.relax.backend.cpu_generic import pipeline

from convoy.deploy.description import Example, encode_example
from convoy.errors import ConvoyError, ModelError, TargetError
from convoy.log import log_step
from convoy.offload.names import KEY
from convoy.offload.settings import Progress, Settings, current_settings, make_settings
from convoy.options import Accuracy, Names, Options, Precision
from convoy.relax import codegen
from convoy.relax.beyond import explain
from convoy.relax.blocks import (
    end_blocks_at_inner_tuples,
    end_blocks_at_sizes,
    end_blocks_at_writes,
    end_called_blocks_at_sizes,
    hand_items_on,
    reads_sizes_early,
)
from convoy.relax.dataflow import is_constant
from convoy.relax.describe import describe, embed, has_team, read_signature
from convoy.relax.empty import make_empty
from convoy.relax.errors_through_tvm import is_of_codegen, keep_error_types
from convoy.relax.executable import Executable
from convoy.relax.exported import is_of_torch, load_exported
from convoy.relax.extremes import reduce_extremes
from convoy.relax.flat_copies import copy_flat
from convoy.relax.fold import fold
from convoy.relax.give_back import give_back_local, give_back_marked
from convoy.relax.hand_over import check_codegens, run_codegen
from convoy.relax.indices import check_indices
from convoy.relax.joined import join_by_copying
from convoy.relax.lift import lift_marked
from convoy.relax.memory_plan import PLANS_MEMORY, can_plan_memory
from convoy.relax.nans import keep_nans
from convoy.relax.network import describe_calls
from convoy.relax.no_touch import NoTouch, no_touch
from convoy.relax.partition import partition
from convoy.relax.places import find_places_in_loops
from convoy.relax.roi_align import align_by_channels
from convoy.relax.room import expect_room
from convoy.relax.running_sums import add_rows
from convoy.relax.scatter import scatter_by_coordinates
from convoy.relax.schedule import count_shared, drop_scopes, schedule_loops
from convoy.relax.share import share_counts
from convoy.relax.size_tensors import compute_sizes_apart
from convoy.relax.uncalled import drop_uncalled
from convoy.relax.unique import find_unique_in_loops
from convoy.relax.views import MAKES_VIEWS, can_tell_views
from convoy.relax.wraps import find_least
from convoy.report.decision import Report, summarize

if TYPE_CHECKING:
    import onnx
    import torch

    from convoy.onnx_file import Shapes, Sizes

keep_error_types()


def compile(
    model: str | Path | onnx.ModelProto | IRModule | torch.nn.Module | torch.export.ExportedProgram,
    target: str | tvm.target.Target | None = None,
    *,
    shapes: Sizes | None = None,
    options: Options | None = None,
    report: Report | None = None,
    progress: Progress | None = None,
    example: Example | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    threads: int | None = None,
    accuracy: Accuracy | None = None,
    precision: Precision | None = None,
    tune: float | None = None,
    strict: bool | None = None,
    merge: bool | None = None,
    disabled_patterns: Names | None = None,
    disabled_ops: Names | None = None,
    exclude: Names | None = None,
    keep: str | Path | None = None,
    cache: str | Path | None = None,
    cores: int | None = None,
    l2_bytes: int | None = None,
) -> Executable:
    """Compile a network: its convolution regions to fused C kernels, the rest by TVM.

    Parameters
    ----------
    model : str | Path | onnx.ModelProto | IRModule | torch.nn.Module | torch.export.ExportedProgram
        Path of an ONNX file, an ``onnx.ModelProto``, a Relax ``IRModule`` with its weights bound as
        constants, or a network of PyTorch.
    target : str | tvm.target.Target | None
        Name of a CPU as LLVM spells it (``haswell``), a TVM target of kind llvm, or None for this
        machine.
    shapes : Sizes | None
        Sizes of ONNX inputs that have open dimensions, by input name; None or 0 leaves a dimension as
        the model has it: ``{"data": (None, 3, 224, 224)}`` for any batch.  Where a dimension has several,
        ``(1, 3, (320, 640), 640)``, the library has a version for each, and picks one when it is called.
    options : Options | None
        What else one may ask for.
    report : Report | None
        Receives every decision, the regions and the FLOPs; the executable's ``report`` is the same.
    progress : Progress | None
        Called with what is being done.
    example : Example | None
        Inputs, and the outputs expected for them: kept in the library, to try it with
        (``Runner.check``).
    example_inputs : Sequence[Any] | Mapping[str, Any] | None
        The tensors that an ``nn.Module`` is called with: they say the sizes.
    dynamic_shapes : Any
        Which of these stay open, as ``torch.export.export`` takes it.
    threads, accuracy, precision, tune, strict, merge, disabled_patterns, disabled_ops, exclude, keep, cache
        As in ``Options``, and on top of ``options``; None: as these say.
    cores, l2_bytes
        Likewise.

    Returns
    -------
    Executable
        A ``tvm.relax.VMExecutable`` with ``export_library`` and all else it has, and the report.

    Raises
    ------
    ModelError, RefusedError, TargetError, ToolchainError, LoweringError
    Exception
        Whatever ``progress`` raises, as it is; and what the codegen of somebody else does.
    ConvoyError
        If an option names what there is not, such as a node to exclude.
    MemoryError
        If there is too little memory.
    """
    given = make_settings("compile", options, report, progress)
    asked: dict[str, Any] = {
        "threads": threads,
        "accuracy": accuracy,
        "precision": precision,
        "tune": tune,
        "strict": strict,
        "merge": merge,
        "disabled_patterns": disabled_patterns,
        "disabled_ops": disabled_ops,
        "exclude": exclude,
        "keep": keep,
        "cache": cache,
        "cores": cores,
        "l2_bytes": l2_bytes,
    }
    on_top = {name: value for name, value in asked.items() if value is not None}
    settings = replace(given, options=replace(given.options, **on_top))
    data = None if example is None else encode_example(example)
    machine = resolve_target(target)
    codegen.region_target(machine)
    of_torch = is_of_torch(model)
    of_onnx = not of_torch and not isinstance(model, IRModule)
    torch_alone = {"example_inputs": example_inputs, "dynamic_shapes": dynamic_shapes}
    _expect_unused({} if of_onnx else {"shapes": shapes or None}, "an ONNX model")
    _expect_unused({} if of_torch else torch_alone, "a network of PyTorch")
    if isinstance(model, IRModule):
        module, raised = model, False
    elif of_torch:
        settings.tell("importing the model")
        module, raised = load_exported(model, example_inputs, dynamic_shapes, settings.report), False
    else:
        from convoy.relax.importer import load
        from convoy.relax.versions import lists_sizes, load_versions

        settings.tell("importing the model")
        if lists_sizes(shapes):
            module = load_versions(model, shapes, settings.report, settings.tell)
        else:
            module = load(model, cast("Shapes | None", shapes), settings.report)
        raised = True
    try:
        built = tvm.compile(
            module, target=machine, relax_pipeline=road(settings, raised=raised, example=data)
        )
    except (ConvoyError, MemoryError, OSError):
        raise
    except Exception as error:  # TVM raises whatever its passes raise
        if settings.stopped_by:
            raise settings.stopped_by[0] from None
        if is_of_codegen(error):
            raise
        words = _last_words(error)
        if of_system := _OF_SYSTEM.match(words):
            raise OSError(int(of_system[1]), of_system[2]) from error
        if "bad_alloc" in words:
            raise MemoryError(words) from error
        raise ModelError(
            "build",
            str(model) if isinstance(model, str | Path) else "model",
            f"expected a model that TVM can compile, got {type(error).__name__}: {words}",
            "see whether TVM alone compiles it; the traceback is this error's cause",
        ) from error
    log_step(summarize(settings.report))
    return Executable(built.mod, settings.report)


def _expect_unused(given: Mapping[str, Any], kind: str) -> None:
    """Refuse what says the sizes of another kind of model, and would change nothing of this one."""
    for name, value in given.items():
        if value is not None:
            problem = f"expected it with {kind} alone, got another model"
            raise ModelError("import", name, problem, "leave it out, or compile that model")


def _last_words(error: Exception) -> str:
    """The last line of TVM's text, where an error's own stands; of a call without a loop which call."""
    found = (line.strip() for line in str(error).splitlines())
    *before, last = [line for line in found if line and not line.startswith("# ")] or [""]
    return f"no code for {last}" if before[-1:] == ["Offending call:"] else last


_OF_SYSTEM = re.compile(r"\[Errno (\d+)\] (.*)")
"""An OSError, of which TVM makes a RuntimeError on its way through C++."""


def road(settings: Settings | None = None, *, raised: bool = False, example: bytes | None = None) -> Pass:
    """The Relax pipeline of targets with the key ``convoy``: from a module to TVM's bytecode.

    Parameters
    ----------
    settings : Settings | None
        None: those of ``using``, else the defaults.
    raised : bool
        The importer has already put back what the frontend took apart.
    example : bytes | None
        What the library holds to be tried with (``deploy/description.py``).

    Raises
    ------
    ConvoyError
        For settings that are none.
    """
    if not isinstance(settings, Settings | None):
        problem, remedy = (
            f"expected Settings, got {settings!r}",
            "leave them out, and write them with using",
        )
        raise ConvoyError("options", "road", problem, remedy)

    def run(module: IRModule, _: PassContext) -> IRModule:
        target = tvm.target.Target.current()
        chosen = settings or current_settings()
        options, report = chosen.options, Report()
        machine = codegen.region_target(target).for_precision(options.precision)
        context = codegen.Context(machine, replace(chosen, report=report))
        signature = read_signature(module)
        chosen.tell("folding and partitioning")
        try:
            module = drop_uncalled(report)(give_back_local(options, report)(lift_marked()(module)))
            check_codegens(module)
            if not raised:
                module = raise_idioms()(module)
            module = fold(report)(expect_room()(share_counts(options.exclude)(module)))
            with codegen.using(context), untouched():
                module = partition(options, report)(module)
                module = give_back_marked(options, report)(module)
                report.calls += describe_calls(module)
                module = run_codegen(module)
        finally:
            chosen.report.extend(report)
        chosen.tell("building TVM's executable")
        module = open_primitives(drop_constants(module))
        module = add_rows()(find_unique_in_loops()(find_places_in_loops()(module)))
        module = check_indices()(copy_flat()(compute_sizes_apart()(module)))
        module = align_by_channels()(keep_nans()(reduce_extremes()(scatter_by_coordinates()(module))))
        module = drop_scopes()(find_least()(join_by_copying()(module)))
        module = give_team(schedule_loops()(run_pipeline(module, target)), context)
        return embed(module, describe(signature, module, context.target, options, report), example)

    return _pass(run, "convoy.road")


def raise_idioms() -> Pass:
    """Pass that brings a module of any frontend into the form the folds and patterns know."""
    from convoy.relax import importer

    dataflow = relax.transform.ConvertToDataflow(min_size=1)
    return no_touch([dataflow, end_blocks_at_writes(), importer.raise_idioms()])


def run_pipeline(module: IRModule, target: tvm.target.Target) -> IRModule:
    """TVM's own passes for ``target``.

    One of them, which makes views of copies, cannot run with some open sizes: the copies stay copies then.
    One that plans memory is left out where branches make tensors: the process would end.  Another, which
    fuses, may put what reads sizes in front of what finds them: then it gets blocks that end there.
    Neither is tried in vain, since TVM warns on stderr of what an error leaves behind.

    Raises
    ------
    ModelError
        For a local function, or an op of a tensor whose sizes nobody knows.
    """
    fuse = Sequential([*pipeline.library_dispatch_passes(target), *pipeline.legalize_passes(target)])
    finish = Sequential([*pipeline.dataflow_lower_passes(target), *pipeline.finalize_passes(target)])
    try:
        with target:
            module = hand_items_on()(end_blocks_at_inner_tuples()(module))
            fused = fuse(end_called_blocks_at_sizes()(module))
            if reads_sizes_early(fused):
                fused = fuse(end_blocks_at_sizes()(module))
            fused = make_empty()(fused)
            fits = {MAKES_VIEWS: can_tell_views, PLANS_MEMORY: can_plan_memory}
            unfit = [name for name, fit in fits.items() if not fit(fused)]
            with _like_the_callers(unfit) if unfit else nullcontext():
                return finish(fused)
    except (tvm.error.InternalError, AssertionError) as error:
        if found := explain(error, module):
            raise found from error
        raise


def untouched() -> AbstractContextManager[None]:
    """The caller's pass context, its instruments replaced by ``NoTouch``."""
    return _like_the_callers(instruments=[NoTouch()])


@contextmanager
def _like_the_callers(disabled: Sequence[str] = (), instruments: Sequence[Any] = ()) -> Iterator[None]:
    """The caller's pass context, of its opt level, config, required and disabled passes.

    The caller's instruments are not entered a second time: that resets them (``PassTimingInstrument``
    forgets all it has timed).  They see the whole road, and what runs in here as part of it.
    """
    current = PassContext.current()
    with PassContext(
        opt_level=current.opt_level,
        required_pass=list(current.required_pass),
        disabled_pass=[*current.disabled_pass, *disabled],
        config=dict(current.config),
        instruments=list(instruments),
    ):
        yield


def drop_constants(module: IRModule) -> IRModule:
    """Forget the constants of external functions: their objects hold the packed weights already."""
    name = "const_name_to_constant"
    return module.without_attr(name) if module.attrs and name in module.attrs else module


def give_team(module: IRModule, context: codegen.Context) -> IRModule:
    """``module`` with a team of threads for the loops it shares, where no region brought one.

    TVM's pool would run them else, which no forked child can use, nor end with.
    """
    if has_team(module) or not count_shared(module):
        return module
    before = list(module.attrs.get("external_mods", ())) if module.attrs else []
    return module.with_attr("external_mods", [*before, *codegen.link_regions([], context)])


def open_primitives(module: IRModule) -> IRModule:
    """``module`` with ``Primitive`` left to those functions that TVM's fusion may take for kernels.

    It allows no constants in one, takes composites for kernels that no codegen took, and ends over a mark
    that is no plain number, be it ``IntImm``.
    """
    opened = {
        var: function.without_attr("Primitive")
        for var, function in module.functions_items()
        if isinstance(function, relax.Function)
        and "Primitive" in (function.attrs or ())
        and (
            not isinstance(function.attrs["Primitive"], int)
            or "Composite" in function.attrs
            or _has_constants(function)
        )
    }
    if opened:
        module = module.clone()
        for var, function in opened.items():
            module.update_func(var, function)
    return module


def _has_constants(function: relax.Function) -> bool:
    found: list[bool] = []
    relax.analysis.post_order_visit(function, lambda expr: found.append(is_constant(expr)))
    return any(found)


# Targets -------------------------------------------------------------------------------------------


def resolve_target(target: str | tvm.target.Target | None) -> tvm.target.Target:
    """The TVM target that ``compile``'s argument names, with the key ``convoy``.

    Raises
    ------
    TargetError
        For a machine that is no CPU, or that Convoy does not know.
    """
    if not isinstance(target, str | Mapping | tvm.target.Target | None):
        raise TargetError(
            "target",
            type(target).__name__,
            "expected the name of a CPU, or a target of TVM's, got an object of this type",
            'name a CPU such as haswell, or write {"kind": "llvm", "mcpu": "haswell"}',
        )
    if isinstance(target, str) and not target.strip():
        raise TargetError(
            "target",
            repr(target),
            "expected the name of a CPU, got none",
            "name one such as haswell, or leave the target out for this machine",
        )
    if target is None or target == KEY:
        return tvm.target.Target(KEY)
    if isinstance(target, str) and not target.startswith(("llvm", "{")):
        if target in ("native", "host"):
            return tvm.target.Target(KEY)
        mcpu = {"portable": "generic", "core-avx2": "haswell"}.get(target, target)
        return tvm.target.Target({"kind": "llvm", "keys": [KEY, "cpu"], "mcpu": mcpu})
    try:
        found = tvm.target.Target(target)
    except (RuntimeError, TypeError, ValueError) as error:
        raise TargetError(
            "target",
            repr(target),
            f"expected the name of a CPU, or a target as TVM writes it, got: {error}",
            'name a CPU such as haswell, or write {"kind": "llvm", "mcpu": "haswell"}',
        ) from error
    if KEY in found.keys:
        return found
    described = {k: v for k, v in found.export().items() if k != "tag"}
    return tvm.target.Target({**described, "keys": [KEY, *found.keys]})


def _pass(run: Callable[[IRModule, PassContext], IRModule], name: str) -> Pass:
    return module_pass(run, opt_level=0, name=name)
