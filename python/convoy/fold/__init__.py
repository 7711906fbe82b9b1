"""The folds that both doors share: what is exact about them, without either TVM.

A door's own ``fold`` walks its functions, reads each call as a ``Node`` and writes what ``scale.py``
decides:

``node``       a call of an op as the folds see it
``constants``  constant expressions, evaluated in float64
``affine``     y = scale · x + shift
``anchors``    convolutions and matmuls, which swallow scales and shifts
``crossing``   ops that let some maps through
``pending``    values held back, and where their maps may go
``scale``      the fold of batch norms, scales, shifts, biases and add chains
"""
