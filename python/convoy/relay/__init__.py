"""The door to classic TVM (Relay)."""

from convoy.installed import require

require("relay")
