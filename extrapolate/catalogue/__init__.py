"""What there is, read from the code: what commands list, and the pages of docs/ that `make docs` remakes."""
