"""Convoy: an external codegen (BYOC) backend for Apache TVM."""

from __future__ import annotations

__version__ = "0.1.0"
