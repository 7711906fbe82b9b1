"""What both doors say alike: what was asked for, and of ops their names, refusals, lowering and work."""
