"""What both doors say alike of the ops they take: the patterns' names, why an op is left, its work."""
