"""The door to modern TVM (Relax)."""
