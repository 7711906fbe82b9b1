"""Eight threads of a process compile eight modules: TVM's own state in classes is kept apart."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

import convoy

THREADS = 8

PROGRAM = """
import sys, threading, traceback
sys.path[:0] = {paths!r}
sys.setswitchinterval(1e-5)
from test_relay_concurrent_compile import THREADS, compile_and_run

failures = []

def work(i):
    try:
        compile_and_run(i)
    except BaseException:
        failures.append(traceback.format_exc())

before = sys.stdout, sys.stderr
threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert (sys.stdout, sys.stderr) == before
print(len(failures), *failures[:2])
"""


def compile_and_run(i: int) -> None:
    """Through ``relay.build`` or ``relay.vm.compile``, for Convoy or not: a 1x1 convolution of Convoy's,
    and ops that TVM writes with tags."""
    import numpy as np
    import tvm
    from tvm import relay
    from tvm.contrib import graph_executor

    random = np.random.default_rng(i)
    x = random.standard_normal((1, 3, 5 + i, 6)).astype(np.float32)
    weight = random.standard_normal((4, 3, 1, 1)).astype(np.float32)
    data = relay.var("data", shape=x.shape)
    body = relay.nn.conv2d(data, relay.const(weight), kernel_size=(1, 1), channels=4)
    body = relay.sum(relay.erf(relay.cumsum(relay.nn.relu(body), axis=1)), axis=[2, 3])
    module = tvm.IRModule.from_expr(relay.Function([data], body))
    target = "llvm" if i % 4 == 3 else "convoy"
    if i % 2:
        with tvm.transform.PassContext(opt_level=3):
            run = graph_executor.GraphModule(relay.build(module, target)["default"](tvm.cpu()))
        run.run(data=x)
        found = run.get_output(0).numpy()
    else:
        executable = relay.vm.compile(module, target)
        found = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(x).numpy()
    sums = np.cumsum(np.maximum(np.einsum("nchw,kc->nkhw", x, weight[:, :, 0, 0]), 0), axis=1)
    expected = np.vectorize(math.erf)(sums).sum((2, 3))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.slow
def test_threads_that_compile_first_thing() -> None:
    # TVM and its door are imported by them, too
    paths = [str(Path(__file__).parent), str(Path(convoy.__file__).parents[1])]
    program = "import convoy\n" + PROGRAM.format(paths=paths)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stdout + done.stderr
