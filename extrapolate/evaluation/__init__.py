"""What positions cost: which tokens are scored with which context, and the losses of a run on them.

In the order of reading: `protocols/` lays windows over documents, `applied` makes the plan of a length, `sharing` and
`losses` score windows under a plan, `targets` puts losses in one order, `rows` makes tables of them, and `lengths` does
all of this for a run. `probes` does it for probes.
"""
