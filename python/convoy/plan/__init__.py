"""``Graph`` → ``Plan``: fusion, layout, algorithm, tiles, threads, memory.  All decisions are here."""
