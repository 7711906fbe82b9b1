"""What is taken of conv2d -> relu -> max_pool2d without one pattern, in both doors."""

from __future__ import annotations

SWITCHED_OFF = [
    ("convoy.conv2d", [["conv2d_relu", "max_pool2d"]]),
    ("convoy.relu", [["conv2d_relu", "max_pool2d"]]),
    ("convoy.conv2d_relu", [["conv2d", "relu", "max_pool2d"]]),
    ("convoy.conv2d_bias", [["conv2d_relu", "max_pool2d"]]),
    ("convoy.max_pool2d", [["conv2d_relu"]]),
]
"""The pattern, and the composites of each external function; a pattern is switched off by itself alone."""
