"""What positions cost: which tokens are scored with which context, and the losses of a run on them.

In the order of reading: `plans` makes the plan of a length, `protocols/` lays windows over documents, `losses` scores
windows under a plan, `window_losses` those of several lengths at once, `targets` puts losses in one order, `rows` makes
tables of them, and `lengths` does all of this for a run. `probes` does it for probes.
"""
