"""A library behind MLServer: the Open Inference Protocol by HTTP and gRPC, as Triton's clients speak it.

MLServer loads this class by its name, from ``model-settings.json`` (``docs/serving.md``)::

    {"name": "resnet50", "implementation": "convoy.deploy.mlserver.ConvoyModel",
     "parameters": {"uri": "./resnet50.so", "extra": {"streams": 2}}}
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.codecs.numpy import to_datatype
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor, RequestInput
from mlserver.utils import get_model_uri

from convoy.deploy.description import Tensor
from convoy.deploy.dtypes import DLPACK
from convoy.deploy.library import first_line
from convoy.deploy.predictor import Predictor
from convoy.errors import ModelError

__all__ = ["ConvoyModel"]


class ConvoyModel(MLModel):  # type: ignore[misc]  # its package is not looked into
    """A library that answers requests.

    ``extra`` of its parameters may say ``streams``, requests at once, and ``threads`` of each.  By itself
    there is one, on all threads of the library; of several each has one thread.
    """

    async def load(self) -> bool:
        """Load the library, and tell clients its inputs and outputs.

        Raises
        ------
        ModelError
            If it cannot be loaded, or ``extra`` says something else.
        """
        given = dict(self.settings.parameters.extra or {}) if self.settings.parameters else {}
        streams, threads = given.pop("streams", 1), given.pop("threads", None)
        if given or not isinstance(streams, int) or streams < 1:
            problem = f"expected streams, at least 1, and threads, got {self.settings.parameters.extra}"
            raise ModelError("run", "extra", problem, "correct model-settings.json")
        if threads is None and streams > 1:
            threads = 1
        self._predictor = Predictor(await get_model_uri(self.settings), threads=threads)
        self._pool = ThreadPoolExecutor(streams, "convoy-stream")
        self.inputs = [_metadata(tensor) for tensor in self._predictor.inputs]
        self.outputs = [_metadata(tensor) for tensor in self._predictor.outputs]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request.

        Raises
        ------
        InferenceError
            If it does not fit the model, in the library's own words: status 400.
        """
        _check_names("inputs", (x.name for x in payload.inputs), self._predictor.inputs)
        wanted = [output.name for output in payload.outputs or ()]
        _check_names("outputs", wanted, self._predictor.outputs)
        batch = {x.name: self._decode(x) for x in payload.inputs}
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._pool, self._predictor, batch)
        except ModelError as error:
            raise InferenceError(str(error)) from error
        names = wanted or [tensor.name for tensor in self._predictor.outputs]
        return InferenceResponse(
            id=payload.id,
            model_name=self.name,
            model_version=self.version,
            outputs=[NumpyCodec.encode_output(name, found[name]) for name in names],
        )

    def _decode(self, given: RequestInput) -> Any:
        try:
            return self.decode(given, default_codec=NumpyCodec)
        except Exception as error:  # a codec's own
            problem = f"expected {given.datatype} {given.shape}, got data that are not: {first_line(error)}"
            remedy = "send as many numbers as the shape says"
            raise InferenceError(str(ModelError("run", given.name, problem, remedy))) from error

    async def unload(self) -> bool:
        """Finish what runs."""
        self._pool.shutdown()
        return True


def _check_names(what: str, given: Iterable[str], tensors: Iterable[Tensor]) -> None:
    known, found = [tensor.name for tensor in tensors], list(given)
    wrong = [name for i, name in enumerate(found) if name not in known or name in found[:i]]
    if wrong:
        problem = f"expected each of {', '.join(known)} once, got {', '.join(wrong)}"
        raise InferenceError(str(ModelError("run", what, problem, "use the model's names")))


def _metadata(tensor: Tensor) -> MetadataTensor:
    """Name, type and shape as the protocol has them: an open size is -1."""
    sizes = [size if isinstance(size, int) else -1 for size in tensor.shape or ()]
    if tensor.dtype in DLPACK:
        problem = f"expected a type that MLServer has, got {tensor}"
        raise ModelError("run", tensor.name, problem, "serve a model whose inputs and outputs are float32")
    datatype = to_datatype(np.dtype(tensor.dtype or "float32"))
    return MetadataTensor(name=tensor.name, datatype=datatype, shape=sizes)
