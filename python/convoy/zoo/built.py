"""Networks beyond convolutions on images, each built by its published shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import onnx

from convoy.zoo.attention import bert, swin, vit, whisper
from convoy.zoo.detr import detr
from convoy.zoo.edgenext import edgenext
from convoy.zoo.efficientformer import efficientformer
from convoy.zoo.fastvit import fastvit
from convoy.zoo.levit import levit
from convoy.zoo.mobilenet_v4 import mobilenet_v4
from convoy.zoo.mobilevit import mobilevit
from convoy.zoo.ocr import recogniser
from convoy.zoo.sequences import crnn, lstm
from convoy.zoo.volumes import r3d, unet3d
from convoy.zoo.yolo import yolo
from convoy.zoo.yolo11 import yolo11

_bert_small = partial(bert, width=512, heads=8, layers=4)
_minilm = partial(bert, width=384, heads=12, layers=6)

_BUILDERS: Mapping[str, Callable[..., onnx.ModelProto]] = {
    "vit_b16": partial(vit, width=768, heads=12, layers=12),
    "deit_tiny": partial(vit, width=192, heads=3, layers=12),
    "swin_t": swin,
    "mobilevit_s": mobilevit,
    "edgenext_s": edgenext,
    "levit_128s": levit,
    "efficientformer_l1": efficientformer,
    "fastvit_t8": fastvit,
    "mobilenet_v4_hybrid": mobilenet_v4,
    "bert_small_64": partial(_bert_small, tokens=64),
    "bert_small_256": partial(_bert_small, tokens=256),
    "minilm_64": partial(_minilm, tokens=64),
    "minilm_256": partial(_minilm, tokens=256),
    "whisper_tiny": whisper,
    "yolov8n_320": partial(yolo, size=320),
    "yolov8n_640": yolo,
    "yolo11n_320": partial(yolo11, size=320),
    "yolo11n_640": yolo11,
    "detr_r50": detr,
    "ppocr_v4": recogniser,
    "crnn": crnn,
    "lstm": lstm,
    "r3d_18": r3d,
    "unet3d": unet3d,
}

BUILT: Mapping[str, Callable[[], onnx.ModelProto]] = {
    name: partial(build, name) for name, build in _BUILDERS.items()
}
"""What makes each of them."""
