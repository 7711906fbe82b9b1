"""The IR-neutral graph of one region: ``ops``, ``graph``, ``verify``, ``reference``."""

from convoy.graph.graph import Graph
from convoy.graph.ops import Node, Tensor

__all__ = ["Graph", "Node", "Tensor"]
