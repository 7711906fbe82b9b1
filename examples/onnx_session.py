"""A script for ONNX Runtime that runs with Convoy by one changed import.

python examples/onnx_session.py model.onnx                   # Convoy
python examples/onnx_session.py model.onnx onnxruntime       # ONNX Runtime, to compare
"""

from __future__ import annotations

import sys
import time

import numpy as np

if len(sys.argv) < 2:
    sys.exit(__doc__)
if sys.argv[2:] == ["onnxruntime"]:
    import onnxruntime as ort
else:
    import convoy.onnx as ort

session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
rng = np.random.default_rng(0)
feed = {
    given.name: rng.random([size if isinstance(size, int) else 1 for size in given.shape], dtype=np.float32)
    for given in session.get_inputs()
}

scores = session.run(None, feed)[0].ravel()
for place in np.argsort(scores)[::-1][:5]:
    print(f"{place:5d}  {scores[place]:.4f}")

begin = time.perf_counter()
for _ in range(20):
    session.run(None, feed)
print(f"{(time.perf_counter() - begin) / 20 * 1000:.2f} ms a run", file=sys.stderr)
