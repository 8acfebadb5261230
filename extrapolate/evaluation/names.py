"""Words that evaluations and reports share, without torch."""

from pathlib import Path

PLAIN_NAME = "none"  # the extension column of a row with nothing but what belongs to the run
OFF = "own taken off"  # the same of a row without the extension that belongs to the run
ALL = "all"  # every extension that applies
PRECISIONS = ("fp32", "bf16", "int8")
PROBE_PROTOCOL = "probe:"  # what the protocol column begins with where the rest is a probe
PROBES_TABLE = "eval_probes.parquet"
DEFAULT_PROTOCOLS = ("windows", "fixed-target")


def protocol_names() -> list[str]:
    """Every protocol, from its file's name: what the registry has, without importing what it takes to run one."""
    files = (Path(__file__).parent / "protocols").glob("*.py")
    return sorted(file.stem.replace("_", "-") for file in files if file.stem != "base" and file.stem[0] != "_")
