"""Run an exported library on arrays with TVM's runtime and nothing else.

No compiler, no headers and none of Convoy's compile-time modules are needed, and TVM's compiler is not
imported: see ``docs/running.md``.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from convoy.deploy.abi import THREAD_FUNCTIONS
from convoy.deploy.description import OF_TVM, Description, Example, Tensor
from convoy.deploy.forks import Turn, forked
from convoy.deploy.inputs import explain_misfit, order_by_name
from convoy.deploy.library import Library, first_line
from convoy.deploy.loans import take_back
from convoy.deploy.pool import Pool
from convoy.deploy.tensors import (
    FAULT,
    NO_ROOM,
    OUTSIDE,
    TOO_SMALL,
    UNLIKE,
    ZERO,
    Lending,
    arrays,
    copied,
    flatten,
    lent,
)
from convoy.errors import ModelError
from convoy.options import MOST_THREADS
from convoy.text import line

__all__ = ["Given", "Runner", "arrays", "load"]

Array = NDArray[Any] | Lending
Given = Sequence[Array] | Mapping[str, Array]
"""Inputs: in the model's order, or by name."""
MOST_SAID = 8
"""Inputs that an error describes."""
_OF_TVM_THREADS = "runtime.config_threadpool"
_DIFFER = re.compile(r"\((-?\d+) vs\. (-?\d+)\) : ErrorContext\(match_cast")
"""How TVM says that an expression of open sizes does not have the value that it has elsewhere."""
_MULTIPLE = re.compile(r"part_of_\w+ \* (\d+)")
"""How it writes a size that is a multiple of a number at every call, in the type it expects."""
_SHORT = re.compile(re.escape(TOO_SMALL) + "(.*); (.*)")
"""What a library says of a size that is too small, and what to do."""
_NO_PLACE = "of them it makes a tensor of a size below 0, or one that memory has no place for"
_SHARE_ALL = -3
"""TVM's word for a pool whose threads may run on all CPUs of a list."""


class _Machine(threading.local):
    """A virtual machine and the arguments bound to it, each thread's own.

    TVM's machines hold the registers of the call that runs, so two threads in one of them break each other.
    """

    def __init__(self, library: Library, threads: int) -> None:
        self.turn = Turn()
        with self.turn:
            self.main = library.start()
        self.arguments: list[Any] = []
        if threads and not forked():
            _limit_threads_of_tvm(threads)


class Runner:
    """A compiled model, ready to be called, by several threads at once if need be.

    Parameters
    ----------
    library : Any
        The file ``export_library`` wrote, or a ``tvm.relax.VMExecutable``.
    streams : int
        Runs at once of those that ``run_async`` begins; more wait in a queue.
    threads : int | None
        Threads of a run; 0: as the library says; None: that with one stream, one thread with several.
        Runs of several threads take turns, so it is one or the other.

    Raises
    ------
    ModelError
        If the file is no library TVM can load, is for other vectors, or a number does not fit.
    """

    def __init__(self, library: Any, *, streams: int = 1, threads: int | None = None) -> None:
        for name, number, least in (("streams", streams, 1), ("threads", threads or 0, 0)):
            if not isinstance(number, int) or not least <= number <= MOST_THREADS:
                raise ModelError(
                    "run",
                    name,
                    f"expected {least} to {MOST_THREADS}, got {number!r}",
                    "take another number",
                )
        self.streams = streams
        self._library = Library(library)
        chosen = (0 if streams == 1 else 1) if threads is None else threads
        set_threads = self._library.function(THREAD_FUNCTIONS[1]) if chosen else None
        if set_threads is not None:
            set_threads(chosen)
        says = self._library.description
        self._uses_pool = says is None or (says.shared_loops > 0 and not says.team_runs_loops)
        self._names = [tensor.name for tensor in says.inputs] if says else []
        self._alignments = says.alignments if says else ()
        self._own_outputs = says.own_outputs if says else ()
        self._memory = Pool() if says is None or says.has_open_sizes else None
        self._machine = _Machine(self._library, self._threads_of_pool(chosen))
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()
        self._starting = Turn()

    def _threads_of_pool(self, chosen: int) -> int:
        """Threads for loops that TVM's pool runs: as chosen, or as regions have; 0: TVM's default."""
        count = self._library.function(THREAD_FUNCTIONS[0])
        if not self._uses_pool or chosen or count is None or self._library.description is None:
            return chosen if self._uses_pool else 0
        return int(count())

    def __repr__(self) -> str:
        if (says := self._library.description) is None:
            return f"<Runner: {line(self._library.name)}>"
        taken, given = ("; ".join(map(str, tensors)) for tensors in (says.inputs, says.outputs))
        return f"<Runner: {line(self._library.name)}: {taken} -> {given}>"

    def __reduce__(self) -> NoReturn:
        """A runner is neither pickled nor copied: it holds a library that is loaded, threads and memory.

        Raises
        ------
        ModelError
            Always.
        """
        raise ModelError(
            "run",
            self._library.name,
            "expected to stay in its process, got pickled or copied",
            "give other processes the library's path, and call convoy.load there",
        )

    @property
    def description(self) -> Description:
        """What the library says of itself.

        Raises
        ------
        ModelError
            If it says nothing.
        """
        if self._library.description is None:
            raise ModelError(
                "run",
                self._library.name,
                "expected a library that describes itself, got one that does not",
                "compile it with convoy.compile, or give the inputs in order, as a list",
            )
        return self._library.description

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Names, shapes and types of the inputs, in the order of a call; raises as ``description``."""
        return self.description.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Those of the outputs; raises as ``description``."""
        return self.description.outputs

    @property
    def example(self) -> Example | None:
        """Inputs and the outputs expected for them, if the library holds some."""
        return self._library.example

    def bind(self, inputs: Sequence[Array]) -> None:
        """Keep ``inputs``, in the model's order, as the arguments of this thread's calls to come.

        They are copied: any strides, alignment and byte order will do.

        Raises
        ------
        ModelError
            If they are no arrays, or TVM has no tensors of an input's type.
        """
        _check_sequence(inputs)
        self._machine.arguments = [copied(f"input {i}", x) for i, x in enumerate(inputs)]

    def call(self) -> Any:
        """Run once on the bound inputs; TVM's own value, without a copy.

        Raises
        ------
        ModelError
            If an input has the wrong shape, type or number, or memory runs out.
        """
        arguments = self._machine.arguments
        answer = self._call(arguments)
        made = (value for value in flatten(answer) if hasattr(value, "shape"))
        self._note([*arguments, *made])
        return answer

    def run(self, inputs: Given | None = None, /, **named: Array) -> list[NDArray[Any]]:
        """One call: arrays in, arrays out, both in the model's order.

        Parameters
        ----------
        inputs : Given | None
            NumPy arrays, tensors of PyTorch, or what else lends its memory by DLPack: in the model's order
            or by name.  They are read where they lie if they are dense and aligned for the library; any
            others are copied.
        **named : Array
            The same by name, where a name is one of Python's.

        Raises
        ------
        ModelError
            As ``call``, and for names that the library does not have.
        """
        if self.streams > 1:
            return self.run_async(inputs, **named).result()
        return self._run(self._in_order(inputs, named))

    def run_async(self, inputs: Given | None = None, /, **named: Array) -> Future[list[NDArray[Any]]]:
        """Begin a call as ``run`` does; it waits in a queue until one of the streams is free.

        The arrays are not to be changed before it is done.

        Raises
        ------
        ModelError
            For names that the library does not have; all else the future raises.
        """
        return self._own_threads().submit(self._run, self._in_order(inputs, named))

    def check(self) -> float:
        """Run the library's example.

        Returns
        -------
        float
            The largest error of an output over its largest expected value.

        Raises
        ------
        ModelError
            If it has none, or cannot be run on it.
        """
        if self.example is None:
            raise ModelError(
                "run",
                self._library.name,
                "expected a library with an example in it, got one without",
                "give one when it is compiled: example=(inputs, outputs)",
            )
        inputs, expected = self.example
        worst = 0.0
        for found, wanted in zip(self.run(inputs), expected, strict=True):
            largest = float(np.max(np.abs(wanted), initial=0)) or 1.0
            worst = max(worst, float(np.max(np.abs(found - wanted), initial=0)) / largest)
        return worst

    def close(self) -> None:
        """Finish what waits, and end the streams' threads; a later ``run_async`` starts them again."""
        with self._starting:
            pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.shutdown()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, inputs: Sequence[Array]) -> list[NDArray[Any]]:
        names, alignments = self._names, self._alignments
        if not len(names) == len(alignments) == len(inputs):
            names, alignments = [f"input {i}" for i in range(len(inputs))], (OF_TVM,) * len(inputs)
        arguments = [lent(*given) for given in zip(names, inputs, alignments, strict=True)]
        found = arrays(self._call(arguments), self._own_outputs)
        self._note([*arguments, *found])
        return found

    def _note(self, tensors: Sequence[Any]) -> None:
        """After a call that took and gave these."""
        if self._memory is not None:
            self._memory.note(tuple([tensor.shape for tensor in tensors]), self._machine.turn)

    def _own_threads(self) -> ThreadPoolExecutor:
        """One for each stream; threads do not survive a fork."""
        with self._starting:
            if self._pool is None or self._process != os.getpid():
                self._pool, self._process = ThreadPoolExecutor(self.streams, "convoy-stream"), os.getpid()
            return self._pool

    def _call(self, arguments: Sequence[Any]) -> Any:
        if self._uses_pool and forked():
            return self._own_threads().submit(self._call, arguments).result()
        machine = self._machine
        try:
            with machine.turn:
                take_back()
                return machine.main(*arguments)
        except MemoryError as error:
            raise ModelError(
                "run", "main", f"expected enough memory for a run, got {first_line(error)}", "free some"
            ) from error
        except (RuntimeError, ValueError, TypeError) as error:
            says = self._library.description
            if says is not None and (misfit := explain_misfit(says, arguments)) is not None:
                raise misfit from None  # TVM says it of its own types
            if differ := _DIFFER.search(str(error)):
                raise ModelError(
                    "run",
                    "main",
                    f"expected sizes that the network takes, got {_describe(arguments)}: "
                    f"{_differ(int(differ[1]), int(differ[2]), str(error))}",
                    "give others",
                ) from error
            if short := _SHORT.search(str(error)):
                expected = f"expected sizes that the network takes, got {_describe(arguments)}: "
                raise ModelError("run", "main", f"{expected}of them {short[1]}", short[2]) from error
            if "bad_alloc" in str(error):
                raise ModelError(
                    "run",
                    "main",
                    f"expected sizes that the network takes, got {_describe(arguments)}: {_NO_PLACE}",
                    "give others",
                ) from error
            for checked in (OUTSIDE, UNLIKE, ZERO):
                if checked in str(error):
                    raise ModelError("run", "main", checked, "give others") from error
            raise ModelError(
                "run",
                "main",
                f"expected inputs the model takes, got {_describe(arguments)}: {first_line(error)}",
                "give every input of the model, in order, in its shape and type",
            ) from error

    def _in_order(self, inputs: Given | None, named: Mapping[str, Array]) -> Sequence[Array]:
        """The arrays in the order of a call."""
        if type(inputs) is list and not named:  # asking what else it is takes as long as a small network
            return inputs
        if isinstance(inputs, Mapping) or named:
            if inputs is not None and not isinstance(inputs, Mapping):
                raise ModelError(
                    "run", "inputs", "expected a list or names, got both", "give all inputs in one way"
                )
            given = {**(inputs or {}), **named} if named or inputs is None else inputs
            return order_by_name(self._names or [tensor.name for tensor in self.inputs], given)
        _check_sequence(inputs if inputs is not None else ())
        return inputs or ()


def load(library: Any, *, streams: int = 1, threads: int | None = None) -> Runner:
    """A ``Runner`` of a library, or of what was compiled in this process; all as there."""
    return Runner(library, streams=streams, threads=threads)


def _check_sequence(inputs: object) -> None:
    if not isinstance(inputs, Sequence):
        raise ModelError(
            "run",
            "inputs",
            f"expected a sequence of arrays, got an object of type {type(inputs).__name__}",
            "write [array], in the model's order",
        )


def _differ(found: int, wanted: int, error: str) -> str:
    if (times := _multiple(error)) and found % times:
        return f"where a multiple of {times} is meant, it has {found}"
    if wanted:
        return f"where one size is meant, it has {found} and {wanted}"
    if found == NO_ROOM:
        return _NO_PLACE
    if abs(found) >= FAULT:
        return "an axis, scale, length or mode among their numbers does not fit"
    return f"where one size is meant, two differ by {abs(found)}"


def _multiple(error: str) -> int | None:
    """What the size that TVM says does not fit is a multiple of, if of a number."""
    found = re.search(r"ty=R\.Tensor\(\((.*?),?\), dtype.*shape\[(\d+)\]", error, re.DOTALL)
    sizes, axis = (found[1].split(", "), int(found[2])) if found else ([], 0)
    multiple = _MULTIPLE.fullmatch(sizes[axis]) if axis < len(sizes) else None
    return int(multiple[1]) if multiple else None


def _describe(arguments: Sequence[Any]) -> str:
    """The first few: of a hundred inputs nobody reads the rest."""
    said = [f"{x.dtype} {list(x.shape)}" for x in arguments[:MOST_SAID]]
    more = len(arguments) - len(said)
    return ", ".join(said) + (f" and {more} more" if more > 0 else "") or "no inputs"


def _limit_threads_of_tvm(threads: int) -> None:
    """Give the pool that TVM has for this thread so many threads: for ops that stayed with TVM."""
    import tvm_ffi

    configure = tvm_ffi.get_global_func(_OF_TVM_THREADS, allow_missing=True)
    if configure is not None:
        cpus = os.sched_getaffinity(0)
        # By itself the pool has a thread for two CPUs, and never more than were listed when it began.
        configure(_SHARE_ALL, threads, [str(cpu) for cpu in sorted(cpus)[: None if threads > 1 else 1]])
        os.sched_setaffinity(0, cpus)  # TVM pins the caller, and so all that it starts from now on
