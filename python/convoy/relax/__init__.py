"""The door to modern TVM (Relax).

Importing it opens TVM's own door: ``tvm.compile(module, target="convoy")``.  The steps of the road
are passes that others may compose: ``fold``, ``partition``, ``no_touch``.
"""

from convoy.relax.compile import road, using
from convoy.relax.door import open_door
from convoy.relax.fold import fold
from convoy.relax.no_touch import NoTouch, no_touch
from convoy.relax.partition import partition

__all__ = ["NoTouch", "fold", "no_touch", "partition", "road", "using"]

open_door()
