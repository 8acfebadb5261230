"""Words that all parts share: of flags, columns and files. Without torch."""

# What is applied to a run, in the column `extension` and where an extension is asked for.
AS_TRAINED = "as-trained"  # nothing but what belongs to the run
WITHOUT_OWN = "without-own"  # not even the extension that belongs to the run
ALL = "all"  # every extension that applies; each has a row of its own
LEFT_OUT = "off"  # in the place of protocols or probes: none of them
PRECISIONS = ("fp32", "bf16", "int8")
TEXT_TABLE, DOCUMENTS_TABLE, TARGETS_TABLE = "evals.parquet", "eval_documents.parquet", "eval_targets.parquet"
PROBES_TABLE = "eval_probes.parquet"
ASKED, RUNS = "asked.json", "runs"  # in a study's folder: how it was asked for, with its cells, and their runs
INSPECTIONS_TABLE = "inspections.parquet"
TASKS_TABLE = "eval_tasks.parquet"
DEFAULT_PROTOCOLS = ("windows", "fixed-target")
LONGEST = 2**24  # tokens in a window: positions are float32, which counts no further one by one
MAX_TARGETS = 8_192  # tokens that a protocol scores at most, unless it has a limit of its own
