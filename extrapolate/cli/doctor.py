"""extrapolate doctor"""

from extrapolate.cli.flags import AsJson, in_flags


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has, and what is slow about it.

    It looks at cores, memory, disk, GPU, torch.compile and extras, in about ten seconds, and says what to do.
    Where something is missing, it ends with exit code 0 nevertheless.
    """
    from extrapolate.api.doctor import doctor as examined
    from extrapolate.cli.render import Column, Kind, print_columns, print_json

    found = examined()
    rows = found.astype(object).where(found.notna(), None).to_dict("records")
    rows = [row | {"advice": row["advice"] and in_flags(row["advice"])} for row in rows]
    if as_json:
        print_json(rows)
        return
    columns = [
        Column("part", [row["part"] for row in rows], Kind.NAME),
        Column("status", [row["status"] for row in rows], Kind.NAME),
        Column("what there is", [row["found"] for row in rows]),
        Column("what to do", [row["advice"] or "" for row in rows]),
    ]
    print_columns(columns, "This machine")
