"""Runs the program by `python -m extrapolate`, as torchrun does."""

from extrapolate.cli import main

if __name__ == "__main__":
    main()
