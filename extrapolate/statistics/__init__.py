"""How certain differences are: intervals, comparisons and ranks from the rows of evaluated runs."""
