"""`python -m extrapolate` is the program, as torchrun starts it."""

from extrapolate.cli import main

if __name__ == "__main__":
    main()
