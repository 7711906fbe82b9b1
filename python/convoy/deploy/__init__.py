"""What a compiled region looks like from outside: TVM's calling convention, standalone libraries."""
