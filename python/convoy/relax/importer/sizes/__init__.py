"""Open sizes: arithmetic on shapes, done while a model is imported.

Exporters write ``x.view(n, 2, c // 2, h, w)`` as a page of Shape, Gather, Mul, Where and Concat nodes.
What such nodes make is known when a model is imported, as numbers and as expressions of its open sizes.
"""

from convoy.relax.importer.sizes.algebra import LARGEST, Algebra, is_late, is_whole
from convoy.relax.importer.sizes.fold import FOLDED, fold_node
from convoy.relax.importer.sizes.known import MOST_ELEMENTS, Known, known_array, known_numbers

__all__ = [
    "FOLDED",
    "LARGEST",
    "MOST_ELEMENTS",
    "Algebra",
    "Known",
    "fold_node",
    "is_late",
    "is_whole",
    "known_array",
    "known_numbers",
]
