"""Measured choices in place of estimates: ``tuner`` chooses, ``trial`` measures, ``store`` remembers."""
