"""ONNX to Relax: ``load`` a model, ``raise_idioms`` that a frontend took apart."""

from .idioms import raise_idioms
from .load import load

__all__ = ["load", "raise_idioms"]
