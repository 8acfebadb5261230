"""xt.check"""

import pandas as pd

from extrapolate import specs
from extrapolate.contract import parts
from extrapolate.errors import UserError


def check(encoding: str, *, seq_len: int = 64) -> pd.DataFrame:
    """Checks in seconds what an encoding must do, before an hour of training goes into it.

    Returns a row a part of the contract: `part`; `wrong`, a text that names the hook at fault, empty where nothing is
    wrong; `seconds`. The parts: every hook by itself; causality by gradient, at 1 and 4 times L; chunks of queries
    against all of them; positions up to 16 L; autocast in bfloat16 against float32; and exact resume. Where the hooks
    by themselves are wrong, nothing else is checked.

    encoding: a spec, such as `my_file.py:MyEncoding:strength=2`, or `rope`. seq_len: the training length L, tokens;
    the model around it is tiny.

    Raises UserError where there is no such encoding, or its file does not import.
    """
    if seq_len < 4:
        raise UserError(f"seq_len must be at least 4 tokens, not {seq_len}")
    spec = specs.parse(encoding)
    found = list(parts.of_encoding(spec.name, spec.arguments, seq_len))
    return pd.DataFrame([vars(part) for part in found]).rename(columns={"name": "part"})
