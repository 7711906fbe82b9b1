"""Convolutions: which algorithm computes one, and the kernels of each algorithm."""
