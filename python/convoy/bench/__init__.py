"""Timing against peers, in interleaved rounds, and comparing answers with ONNX Runtime.

``measure.measure`` is the entry; ``engines.ENGINES`` is the table of what can be timed.
"""
