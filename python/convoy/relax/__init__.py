"""The door to modern TVM (Relax).

Importing it opens TVM's own door: ``tvm.compile(module, target="convoy")``.  The steps of the road
are passes that others may compose: ``fold``, ``partition``, ``no_touch``, ``mark``.
"""

from convoy.installed import require

require("relax")

from convoy.offload.settings import using  # noqa: E402  the check comes first
from convoy.relax.compile import road  # noqa: E402
from convoy.relax.door import open_door  # noqa: E402
from convoy.relax.fold import fold  # noqa: E402
from convoy.relax.mark import mark  # noqa: E402
from convoy.relax.no_touch import NoTouch, no_touch  # noqa: E402
from convoy.relax.partition import partition  # noqa: E402
from convoy.relax.threads import keep_threads_apart  # noqa: E402

__all__ = ["NoTouch", "fold", "mark", "no_touch", "partition", "road", "using"]

keep_threads_apart()
open_door()
