"""Chains of kernels that run strip by strip: which do, and the step that runs them."""
