"""Which TVM this environment has, found out without importing it: that takes more than a second."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from convoy.errors import DoorError

Door = Literal["relax", "relay"]
"""The door that fits a TVM: ``relax`` for modern ones, ``relay`` for classic ones."""

OLDEST, BELOW = (0, 27), (0, 28)
"""The versions of a modern TVM that Convoy works with: from the first, and below the second."""
SPECIFIER = "'apache-tvm>=0.27,<0.28'"
"""The same for pip, as in ``pyproject.toml``."""

_REMEDY = {
    "relax": "use convoy.compile, or tvm.compile(module, target='convoy')",
    "relay": "use convoy.relay: relay.build(module, target='convoy', params=params);"
    " docs/running.md says how its libraries run",
}
"""What to do, by the door that fits."""
_KIND = {"relax": "a modern TVM (Relax)", "relay": "a classic TVM (Relay)"}


def find_tvm() -> Path | None:
    """Folder of the TVM that ``import tvm`` gives; None where there is none."""
    found = sys.modules["tvm"].__spec__ if "tvm" in sys.modules else importlib.util.find_spec("tvm")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    return Path(folders[0]) if folders else None


def door() -> Door | None:
    """The door that fits the TVM of this environment; None where there is none."""
    folder = find_tvm()
    if folder is None:
        return None
    return "relay" if (folder / "relay" / "__init__.py").is_file() else "relax"


def version_fault() -> str:
    """What to do about the version of TVM; empty: nothing, or there is none that is known.

    The oldest and the newest that Convoy is tested with are ``OLDEST`` and ``BELOW``.
    """
    if door() != "relax":
        return ""
    try:
        found = version("apache-tvm")
    except PackageNotFoundError:  # one built from source
        return ""
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if OLDEST <= numbers < BELOW:
        return ""
    return f"install {SPECIFIER}"


def require(wanted: Door) -> None:
    """Hold a door to the TVM it is for.

    Raises
    ------
    DoorError
        If this environment has another TVM, or none.
    """
    found = door()
    if found == wanted:
        if wanted == "relax" and (remedy := version_fault()):
            raise DoorError(
                "import",
                "tvm",
                f"expected {SPECIFIER}, got {version('apache-tvm')} in {find_tvm()}",
                remedy,
            )
        return
    expected = f"expected {_KIND[wanted]}, got"
    if found is None:
        package = "apache-tvm" if wanted == "relax" else "TVM 0.14 to 0.19"
        raise DoorError("import", f"convoy.{wanted}", f"{expected} no TVM at all", f"install {package}")
    raise DoorError(
        "import", f"convoy.{wanted}", f"{expected} {_KIND[found]} in {find_tvm()}", _REMEDY[found]
    )
