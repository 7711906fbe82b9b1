"""The door to classic TVM (Relay).

Importing it opens TVM's own door: ``relay.build(module, target="convoy", params=params)``.
``partition_for_convoy`` does the same as a step of its own.
"""

from convoy.installed import require

require("relay")

from convoy.offload.settings import using  # noqa: E402  the check comes first
from convoy.relay.compile import partition_for_convoy  # noqa: E402
from convoy.relay.door import open_door  # noqa: E402
from convoy.relay.fold import fold  # noqa: E402
from convoy.relay.no_touch import NoTouch, no_touch  # noqa: E402
from convoy.relay.one_op import one_op  # noqa: E402
from convoy.relay.partition import partition  # noqa: E402
from convoy.relay.shape_functions import register_shape_functions  # noqa: E402
from convoy.relay.threads import keep_threads_apart  # noqa: E402

__all__ = ["NoTouch", "fold", "no_touch", "one_op", "partition", "partition_for_convoy", "using"]

keep_threads_apart()
open_door()
register_shape_functions()
