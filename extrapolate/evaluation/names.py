"""Words that evaluations and reports share, without torch."""

PLAIN_NAME = "none"  # the extension column of a row with nothing but what belongs to the run
OFF = "own taken off"  # the same of a row without the extension that belongs to the run
ALL = "all"  # every extension that applies
PRECISIONS = ("fp32", "bf16", "int8")
PROBE_PROTOCOL = "probe:"  # what the protocol column begins with where the rest is a probe
PROBES_TABLE = "eval_probes.parquet"
DEFAULT_PROTOCOLS = ("windows", "fixed-target")
MAX_TARGETS = 8_192  # tokens that a protocol scores at most, unless it has a limit of its own
