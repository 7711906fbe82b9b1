"""One file or folder for each kind of kernel: its steps, what plans them, what writes them.

``registry.py`` lists them all; ``planner.py`` is the road from ``Graph`` to ``Plan``.
"""
