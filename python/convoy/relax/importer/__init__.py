"""ONNX to Relax: ``load`` a model, ``raise_idioms`` that a frontend took apart."""

from convoy.relax.importer.idioms import raise_idioms
from convoy.relax.importer.load import load

__all__ = ["load", "raise_idioms"]
