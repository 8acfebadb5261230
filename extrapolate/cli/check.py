"""extrapolate check and extrapolate doctor"""

from typing import Annotated

import typer

from extrapolate.cli.flags import AsJson, in_flags
from extrapolate.errors import UserError


def check(
    encoding: Annotated[
        str, typer.Argument(help="rope, my_file.py:MyEncoding, or an extension: my_file.py:MyExtension:factor=2")
    ],
    seq_len: Annotated[int, typer.Option(help="training length L, tokens")] = 64,
    as_json: AsJson = False,
) -> None:
    """Check in seconds what an encoding must do.

    Use it before an hour of training goes into an encoding or an extension of your own.
    """
    from extrapolate.api.check import check as checked
    from extrapolate.cli.render import Column, Kind, print_columns, print_json
    from extrapolate.contract.small_model import SIZES

    found = checked(encoding, seq_len=seq_len)
    if as_json:
        print_json(found.drop(columns="error").to_dict("records"))
    else:
        columns = [
            Column("part", list(found["part"]), Kind.NAME),
            Column("result", [wrong or "ok" for wrong in found["wrong"]]),
            Column("seconds", [f"{seconds:.1f}" for seconds in found["seconds"]], Kind.NUMBER),
        ]
        print_columns(columns, f"{encoding}, L = {seq_len} tokens, {SIZES.heads} heads, G = {SIZES.kv_heads}")
    wrong = found["error"].dropna()
    if len(wrong):
        more = f" (and {len(wrong) - 1} more, see the table)" if len(wrong) > 1 else ""
        raise UserError(f"{wrong.iloc[0]}{more}") from wrong.iloc[0].__cause__


def doctor() -> None:
    """Say what this machine has, and what is slow about it.

    It looks at cores, memory, disk, GPU, torch.compile and extras, in about ten seconds, and says what to do.
    The exit code is 0 even if something is missing.
    """
    from extrapolate.api.check import doctor as examined
    from extrapolate.cli.render import Column, Kind, print_columns

    found = examined()
    columns = [
        Column("part", list(found["part"]), Kind.NAME),
        Column("status", list(found["status"]), Kind.NAME),
        Column("what there is", list(found["found"])),
        Column("what to do", list(map(in_flags, found["advice"]))),
    ]
    print_columns(columns, "This machine")
