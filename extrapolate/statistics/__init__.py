"""How sure a difference is: rows of evaluated runs in, intervals, comparisons and ranks out."""
