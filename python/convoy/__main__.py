"""``python -m convoy`` is ``convoy``."""

from convoy.cli import main

if __name__ == "__main__":
    main()
