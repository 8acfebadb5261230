"""Inspects one run: measurements x extensions x lengths, each on the same windows' ends."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import torch

from extrapolate.data.store import Split, Store
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.evaluation import lengths
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.memory import MEMORY, OutOfMemoryError, of_memory
from extrapolate.evaluation.plans import AppliedExtensions, extensions_to_evaluate
from extrapolate.evaluation.protocols.base import Layout, Windows, lengths_of, protocols, targets_hash
from extrapolate.evaluation.rows import common, of_extension, reason_of
from extrapolate.inspection.inspected import Inspected
from extrapolate.inspection.measurements.base import Measurement, measurements
from extrapolate.inspection.settings import PROTOCOL, InspectionSettings
from extrapolate.machine.devices import to_device
from extrapolate.model.language_model import LanguageModel
from extrapolate.names import INSPECTIONS_TABLE
from extrapolate.progress import Advance, unseen
from extrapolate.results import INSPECTIONS, check_grows
from extrapolate.specs import LARGEST_WHOLE, shown

MOST_WINDOWS, LEAST_WINDOWS = 16, 4  # unless asked otherwise: as many as have MOST_TOKENS at the longest length
MOST_TOKENS = 2**15


def chosen(settings: InspectionSettings) -> dict[str, type[Measurement]]:
    """The measurements, by name. Raises UserError if one is unknown."""
    return {name: measurements[name] for name in settings.measures or measurements.names()}


def layout_of(settings: InspectionSettings, split: Split, seq_len: int) -> Layout:
    """The windows of every length: the last L/2 inputs of each are the same at every length."""
    found = lengths_of(settings.factors, seq_len)
    usual = max(LEAST_WINDOWS, min(MOST_WINDOWS, MOST_TOKENS // max(found)))
    targets = (usual if settings.windows is None else settings.windows) * max(1, seq_len // 2)
    return protocols[PROTOCOL]().layout(split.lengths, seq_len, found, targets)


def check_run(run: AnyRun, store: Store, settings: InspectionSettings) -> None:
    """Raises UserError if nothing at all can be measured of a run: it is damaged, or of another text."""
    lengths.check_run(run, store, settings.evaluation())
    check_grows(run.path / INSPECTIONS_TABLE, INSPECTIONS)


def check(run: AnyRun, store: Store, settings: InspectionSettings) -> None:
    """Raises UserError if anything asked for cannot be measured, before any work is done."""
    chosen(settings)
    if settings.windows is not None and not 0 < settings.windows <= LARGEST_WHOLE:
        raise UserError(f"`windows` must be at least 1, not {shown(settings.windows)}")
    lengths.check(run, store, settings.evaluation())
    if min(lengths_of(settings.factors, run.config.seq_len)) < 2:
        raise UserError("a window of 1 token shows no use of position: give larger `factors`")


def expected_inputs(run: AnyRun, store: Store, settings: InspectionSettings) -> float:
    """About how many inputs `inspect` computes, for its progress."""
    model = run.build_model()
    recipes = len(extensions_to_evaluate(run, model, settings.extend))
    layout = layout_of(settings, store.split(settings.split), model.seq_len)
    return recipes * sum(
        measurement.inputs(model.seq_len, length, len(windows.start_W))
        for measurement in chosen(settings).values()
        for length, (windows,) in layout.rows.items()
    )


def inspect(
    run: AnyRun, store: Store, settings: InspectionSettings, *, device: str = "cpu", progress: Advance = unseen
) -> Iterator[list[dict[str, Any]]]:
    """Yields rows for `inspections.parquet` (see `results.tables`), an extension and a length at a time.

    The run as it was trained is always inspected. What cannot be measured has one row for each quantity, without a
    value, and says why.
    """
    split = store.split(settings.split)
    evaluation = settings.evaluation()
    for checkpoint, loaded, precision, model in lengths.models(run, store, evaluation, device, progress):
        layout = layout_of(settings, split, model.seq_len)
        shared = common(run, loaded, checkpoint, precision, settings.split, store.corpus_hash)
        shared["targets_hash"] = targets_hash(layout.control, store.corpus_hash, settings.split)
        for text, applied in extensions_to_evaluate(run, loaded, settings.extend).items():
            shared |= of_extension(run, loaded, text, applied)
            for length, (windows,) in layout.rows.items():
                what = f"{shared['run']} {shared['model']} {length / model.seq_len:g}x"
                plan = _plan(applied, run, model, store, length)
                inspected = None
                if plan is not None and model.defined_at(length, plan):
                    inspected = _inspected(model, plan, split, windows)
                count, factor = len(windows.start_W), length / model.seq_len
                at_length = shared | {"length": length, "factor": factor, "n_windows": count}
                rows: list[dict[str, Any]] = []
                for name, measurement in chosen(settings).items():
                    here = at_length | {"measurement": name}
                    if inspected is None:
                        progress(what, measurement.inputs(model.seq_len, length, count))
                        rows += _without_values(here, measurement, str(reason_of(None, model, length, plan)))
                    else:
                        rows += _rows(
                            here, measurement, replace(inspected, advance=partial(progress, f"{what} {name}"))
                        )
                yield rows


def _plan(applied: AppliedExtensions, run: AnyRun, model: LanguageModel, store: Store, length: int) -> Plan | None:
    """The plan at a length; None if memory does not suffice to fit a constant of it."""
    try:
        return applied.fitted_plan(run, model, store, length, "fp32")
    except OutOfMemoryError:
        return None


def _inspected(model: LanguageModel, plan: Plan, split: Split, windows: Windows) -> Inspected:
    tokens_WN = torch.from_numpy(windows.tokens(split, slice(None)).astype(np.int64))
    return Inspected(model, model.setting(plan), model.seq_len, to_device(tokens_WN, model.device))


def _rows(here: dict[str, Any], measurement: type[Measurement], inspected: Inspected) -> list[dict[str, Any]]:
    if (reason := measurement.refusal(inspected)) is not None:
        return _without_values(here, measurement, reason)
    try:
        values = list(measurement.measure(inspected))
    except (MemoryError, RuntimeError) as error:
        if not of_memory(error):
            raise
        return _without_values(here, measurement, MEMORY)
    evaluated_at = datetime.now(UTC).replace(microsecond=0)
    return [
        here
        | {
            "quantity": value.quantity, "layer": value.layer, "head": value.head, "at": value.at,
            "value": value.mean, "error": value.error, "evaluated_at": evaluated_at,
        }
        for value in values
    ]  # fmt: skip


def _without_values(here: dict[str, Any], measurement: type[Measurement], reason: str) -> list[dict[str, Any]]:
    evaluated_at = datetime.now(UTC).replace(microsecond=0)
    return [
        here | {"quantity": name, "reason": reason, "evaluated_at": evaluated_at} for name in measurement.quantities
    ]
