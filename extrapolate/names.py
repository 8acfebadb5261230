"""Names shared by all parts: of flags, columns and files. Does not import torch."""

# Values of the column `extension`, and of flags that take an extension.
AS_TRAINED = "as-trained"  # nothing beyond the run's own extension
WITHOUT_OWN = "without-own"  # not even the run's own extension
ALL = "all"  # every extension that applies, in separate rows
LEFT_OUT = "off"  # instead of protocols or probes: none
PRECISIONS = ("fp32", "bf16", "int8")
TEXT_TABLE, DOCUMENTS_TABLE, TARGETS_TABLE = "evals.parquet", "eval_documents.parquet", "eval_targets.parquet"
PROBES_TABLE = "eval_probes.parquet"
ASKED, RUNS = "asked.json", "runs"  # in a study's folder: the study as given, with its cells; and their runs
INSPECTIONS_TABLE = "inspections.parquet"
TASKS_TABLE = "eval_tasks.parquet"
DEFAULT_PROTOCOLS = ("windows", "fixed-target")
LONGEST = 2**24  # tokens in a window: float32 positions cannot count further
MAX_TARGETS = 8_192  # the most tokens that a protocol scores, unless it has its own limit
