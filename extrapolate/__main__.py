"""Runs the program by `python -m extrapolate`, as torchrun does."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:  # Python puts the current folder first, which may be a stranger's
        del sys.path[0]
    from extrapolate.cli import main

    main()
