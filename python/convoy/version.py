"""Which Convoy this is."""

__version__ = "0.1.0"
"""Where the version stands: the package is built with it, and libraries name it."""
