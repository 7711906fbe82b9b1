"""``Plan`` → C source (``emit``, ``kernels``) and packed weights (``pack``).  Decides nothing."""
