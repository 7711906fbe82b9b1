"""Networks beyond convolutions on images, each built by its published shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import onnx

from convoy.zoo.attention import bert, swin, vit, whisper
from convoy.zoo.mobilevit import mobilevit
from convoy.zoo.sequences import crnn, lstm
from convoy.zoo.volumes import r3d, unet3d
from convoy.zoo.yolo import yolo

_bert_small = partial(bert, width=512, heads=8, layers=4)
_minilm = partial(bert, width=384, heads=12, layers=6)

_BUILDERS: Mapping[str, Callable[..., onnx.ModelProto]] = {
    "vit_b16": partial(vit, width=768, heads=12, layers=12),
    "deit_tiny": partial(vit, width=192, heads=3, layers=12),
    "swin_t": swin,
    "mobilevit_s": mobilevit,
    "bert_small_64": partial(_bert_small, tokens=64),
    "bert_small_256": partial(_bert_small, tokens=256),
    "minilm_64": partial(_minilm, tokens=64),
    "minilm_256": partial(_minilm, tokens=256),
    "whisper_tiny": whisper,
    "yolov8n_320": partial(yolo, size=320),
    "yolov8n_640": yolo,
    "crnn": crnn,
    "lstm": lstm,
    "r3d_18": r3d,
    "unet3d": unet3d,
}

BUILT: Mapping[str, Callable[[], onnx.ModelProto]] = {
    name: partial(build, name) for name, build in _BUILDERS.items()
}
"""What makes each of them."""
