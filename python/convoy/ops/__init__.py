"""What Convoy knows of each op of TVM: one row an op, in a file a family; ``table`` collects them."""
