"""xt.check and xt.doctor"""

from pathlib import Path

import pandas as pd

from extrapolate import specs
from extrapolate.api.own_class import EncodingClass, ExtensionClass, spec_of
from extrapolate.contract import parts
from extrapolate.errors import UserError
from extrapolate.extensions.base import Extension, extensions
from extrapolate.machine.examination import examine
from extrapolate.specs import user_files

LEAST, MOST = 4, 4096  # tokens: windows of 16 L are computed


def check(encoding: str | EncodingClass | ExtensionClass, *, seq_len: int = 64) -> pd.DataFrame:
    """Checks an encoding or an extension in seconds, before an hour of training goes into it.

    Returns a row per part of the check: `part`; `wrong`, a text that names the hook at fault, or an empty string;
    `seconds`; and `error`, the exception, whose `__cause__` has the traceback of your own code, or None. For an
    encoding the parts are each hook alone; what a token sees, at L and 4 L; queries in chunks and all at once, which
    must agree, and a cache of earlier tokens and one pass; what extensions must change; positions up to 16 L; bfloat16
    autocast against float32; initial sizes, which must be those of a model without an encoding; and exact resumption.
    If a hook alone is wrong, the other parts are skipped. For an extension they are plans that no call changes; a
    factor of 1, if it has a factor, which must change nothing; and plans from 1 to 16 L, in a model with an encoding
    that it applies to. The model has 4 heads, which share 2 key heads.

    encoding: a spec, such as `my_file.py:MyEncoding:strength=2`, `rope` or `my_file.py:MyExtension`; or a class, as in
    `train`. seq_len: the training length L, 4 to 4,096 tokens; the model around it is tiny.

    Raises UserError if there is no such encoding, or its file does not import.
    """
    if not LEAST <= seq_len <= MOST:
        raise UserError(f"`seq_len` must be between {LEAST} and {MOST} tokens, not {specs.truncate(seq_len)}")
    text = spec_of(encoding)
    spec = specs.parse(text)
    file, _, name = spec.name.rpartition(":")
    if user_files.derives(Path(file), name, Extension) if file else name in extensions.names():
        found = list(parts.of_extension(text, seq_len))
    else:
        found = list(parts.of_encoding(spec.name, spec.arguments, seq_len))
    return pd.DataFrame([vars(part) for part in found]).rename(columns={"name": "part"})


def doctor(folder: str | Path = ".") -> pd.DataFrame:
    """Examines this machine in about ten seconds: what it has, what is slow about it, and what to do.

    Returns a row per part: `part`; `status`, which is `ok`, `slow`, `low` or `missing`; `found`; and `advice`, which is
    empty if there is nothing to do. The parts are torch; the cores, in whose time this process may run; threads; the
    memory that it may take; the space on the disk of `folder` (default: the current one); the GPU; whether
    torch.compile works; and each extra.

    Raises OSError if the folder does not exist.
    """
    return pd.DataFrame(examine(Path(folder)))
