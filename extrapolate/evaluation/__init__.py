"""Which tokens are scored with which context, and a run's losses on them.

Reading order: `plans` makes the plan for a length, `protocols/` lays windows over documents, `losses` scores windows
under a plan, `window_losses` those of several lengths at once, `targets` puts losses in one order, `rows` turns them
into tables, and `lengths` does all of this for a run. `probes` is its counterpart for probes.
"""
