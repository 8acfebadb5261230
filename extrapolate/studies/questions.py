"""The questions of a study: finds the runs that each side of one means, before anything is trained."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from extrapolate.errors import UserError
from extrapolate.names import AS_TRAINED
from extrapolate.studies.resolved import Resolved
from extrapolate.studies.study import Study


def question_rows(study: Study, cells: Sequence[Resolved]) -> Iterator[dict[str, Any]]:
    """The rows for the study's report: see `reports.questions.QUESTIONS`.

    Raises UserError, with the line of the study's file, if a side is no model or several models, is not evaluated with
    its extension, or is never in the same report as the other side.
    """
    named = _named(cells)
    for number, question in enumerate(study.questions):
        sides = {side: _side(study, named, number, side, getattr(question, side)) for side in ("a", "b")}
        kinds = [{_kind(cell) for cell, _ in found} for found in sides.values()]
        if not kinds[0] & kinds[1]:
            raise UserError(f"{study.at('question', number)}: a and b differ in their training length or their text")
        if sides["a"] == sides["b"]:
            raise UserError(f"{study.at('question', number, 'b')}: a and b are one model")
        for side, found in sides.items():
            for cell, extension in found:
                yield {
                    "question": number, "a": question.a, "b": question.b, "factor": question.at, "side": side,
                    "run": cell.name, "extension": extension,
                }  # fmt: skip


def _named(cells: Sequence[Resolved]) -> dict[str, list[tuple[Resolved, str]]]:
    """The cells of a model by each of its names, with the extension that the name includes.

    The names are the encoding, `rope` or `rope + yarn`, or the label instead; that in tables, `RoPE + YaRN`; and the
    cells' `rope-layers2`.
    """
    found: dict[str, list[tuple[Resolved, str]]] = {}
    for cell in cells:
        own = {cell.cell.model_name}
        if cell.cell.continues is None:
            own.add(str(cell.cell.settings.get("label", cell.cell.settings["encoding"])))
        for extension, label in cell.models.items():
            for name in {label, *(f"{one}{_applied(extension)}" for one in own)}:
                mine = found.setdefault(_key(name), [])
                if (cell, extension) not in mine:
                    mine.append((cell, extension))
    return found


def _applied(extension: str) -> str:
    return "" if extension == AS_TRAINED else f" + {extension}"


def _key(name: str) -> str:
    return " ".join(name.casefold().split())


def _kind(cell: Resolved) -> tuple[int, str]:
    """A key that is equal for cells in the same report."""
    return cell.config.seq_len, cell.config.data.corpus_hash


def _side(
    study: Study, named: dict[str, list[tuple[Resolved, str]]], number: int, side: str, text: str
) -> list[tuple[Resolved, str]]:
    where = study.at("question", number, side)
    found = named.get(_key(text))
    if found is None:
        model, plus, extension = text.rpartition(" + ")
        if plus and _key(model) in named:
            raise UserError(
                f"{where}: {model} is not evaluated with the extension '{extension}': name it under [evaluate], in "
                "extend, if it applies"
            )
        known = sorted({f"{cell.cell.model_name}{_applied(at)}" for mine in named.values() for cell, at in mine})
        nearest = difflib.get_close_matches(_key(text), named, n=1)
        near = f" (did you mean '{nearest[0]}'?)" if nearest else ""
        raise UserError(f"{where}: no model of the study is called '{text}'{near}; there are {', '.join(known)}")
    of_kind: dict[tuple[int, str], set[str]] = {}
    for cell, _ in found:
        of_kind.setdefault(_kind(cell), set()).add(cell.cell.model_name)
    if several := next((sorted(names) for names in of_kind.values() if len(names) > 1), None):
        raise UserError(f"{where}: '{text}' is several models; name one of {', '.join(several)}")
    return found
