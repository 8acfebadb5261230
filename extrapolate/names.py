"""Names shared by all parts: of flags, columns and files. Does not import torch."""

# Values of the column `extension`, and of flags that take an extension.
AS_TRAINED = "as-trained"  # nothing beyond the run's own extension
WITHOUT_OWN = "without-own"  # not even the run's own extension
ALL = "all"  # every extension that applies, in separate rows
LEFT_OUT = "off"  # instead of protocols or probes: none
PRECISIONS = ("fp32", "bf16", "int8")
# In a folder of whole tables, such as a report's.
TEXT_TABLE, DOCUMENTS_TABLE = "evals.parquet", "eval_documents.parquet"
PROBES_TABLE, TASKS_TABLE, INSPECTIONS_TABLE = "probes.parquet", "eval_tasks.parquet", "inspections.parquet"
# In a study's folder: the study as given, with its cells; their runs; and their states.
ASKED, RUNS, STATES = "asked.json", "runs", "state"
DEFAULT_PROTOCOLS = ("windows", "fixed-target")
LONGEST = 2**24  # tokens in a window: float32 positions cannot count further
MAX_TARGETS = 8_192  # the most tokens that a protocol scores, unless it has its own limit
