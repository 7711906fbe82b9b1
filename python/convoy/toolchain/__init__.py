"""C source to objects and libraries: the compiler, its cache, the loader."""
