"""What both doors say alike of the ops they take: names of patterns, why one is left, what one becomes, its work."""
