"""Inspects a run: measurements x extensions x lengths, all on the same ends of windows."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import torch

from extrapolate.data.store import Split, Store
from extrapolate.errors import UserError
from extrapolate.evaluation import causality, lengths
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.memory import MEMORY, OutOfMemoryError, of_memory
from extrapolate.evaluation.plans import extensions_to_evaluate
from extrapolate.evaluation.protocols.base import Layout, lengths_of, protocols, targets_hash
from extrapolate.evaluation.rows import common, missing_reason, of_extension
from extrapolate.inspection.inspected import Inspected
from extrapolate.inspection.measurements.base import Measurement, measurements
from extrapolate.inspection.settings import PROTOCOL, InspectionSettings
from extrapolate.machine.devices import to_device
from extrapolate.progress import Advance, unseen
from extrapolate.specs import LARGEST_WHOLE, truncate

MOST_WINDOWS, LEAST_WINDOWS = 16, 4  # by default, as many as have MOST_TOKENS at the longest length
MOST_TOKENS = 2**15


def chosen(settings: InspectionSettings) -> dict[str, type[Measurement]]:
    """The measurements, by name. Raises UserError if one is unknown."""
    return {name: measurements[name] for name in settings.measures or measurements.names()}


def layout_of(settings: InspectionSettings, split: Split, seq_len: int) -> Layout:
    """The windows at every length. Their last L/2 inputs are the same at every length."""
    found = lengths_of(settings.factors, seq_len)
    usual = max(LEAST_WINDOWS, min(MOST_WINDOWS, MOST_TOKENS // max(found)))
    targets = (usual if settings.windows is None else settings.windows) * max(1, seq_len // 2)
    return protocols[PROTOCOL]().layout(split.lengths, seq_len, found, targets)


def check_run(run: AnyRun, store: Store, settings: InspectionSettings) -> None:
    """Raises UserError if a run cannot be measured at all, because it is damaged or of another text."""
    lengths.check_run(run, store, settings.evaluation())


def check(run: AnyRun, store: Store, settings: InspectionSettings) -> None:
    """Raises UserError before starting if a setting is invalid."""
    chosen(settings)
    if settings.windows is not None and not 0 < settings.windows <= LARGEST_WHOLE:
        raise UserError(f"`windows` must be at least 1, not {truncate(settings.windows)}")
    lengths.checked(run, store, settings.evaluation())
    if min(lengths_of(settings.factors, run.config.seq_len)) < 2:
        raise UserError("a window of 1 token shows no use of position: give larger `factors`")


def expected_inputs(run: AnyRun, store: Store, settings: InspectionSettings) -> float:
    """The approximate number of inputs that `inspect` computes, for its progress."""
    model = run.build_model()
    stacks = len(extensions_to_evaluate(run, model, settings.extend))
    layout = layout_of(settings, store.split(settings.split), model.seq_len)
    return stacks * sum(
        measurement.inputs(model.seq_len, length, len(windows.start_W))
        for measurement in chosen(settings).values()
        for length, (windows,) in layout.rows.items()
    )


def inspect(
    run: AnyRun, store: Store, settings: InspectionSettings, *, device: str = "cpu", progress: Advance = unseen
) -> Iterator[list[dict[str, Any]]]:
    """Yields rows of INSPECTIONS (see `results.tables`), for one extension and length at a time.

    The run as it was trained is always inspected. A measurement that is not possible has a row for each quantity,
    without a value but with the reason.
    """
    split = store.split(settings.split)
    for checkpoint, loaded, precision, model in lengths.models(run, settings.evaluation(), device):
        causality.check_run(run, loaded, settings.extend, lengths_of(settings.factors, loaded.seq_len), progress)
        layout = layout_of(settings, split, model.seq_len)
        shared = common(run, loaded, checkpoint, precision, settings.split, store.corpus_hash)
        shared["targets_hash"] = targets_hash(layout.control, store.corpus_hash, settings.split)
        for text, applied in extensions_to_evaluate(run, loaded, settings.extend).items():
            shared |= of_extension(run, loaded, text, applied)
            for length, (windows,) in layout.rows.items():
                what = f"{shared['run']} {shared['model']} {length / model.seq_len:g}x"
                try:
                    plan = applied.fitted_plan(run, model, store, length, "fp32")
                except OutOfMemoryError:  # in fitting a constant
                    plan = None
                inspected = None
                if plan is not None and model.defined_at(length, plan):
                    tokens_WN = torch.from_numpy(windows.tokens(split, slice(None)).astype(np.int64))
                    tokens_WN = to_device(tokens_WN, model.device)
                    inspected = Inspected(model, model.resolve(plan), model.seq_len, tokens_WN)
                count, factor = len(windows.start_W), length / model.seq_len
                at_length = shared | {"length": length, "factor": factor, "n_windows": count}
                rows: list[dict[str, Any]] = []
                for name, measurement in chosen(settings).items():
                    if inspected is None:
                        progress(what, measurement.inputs(model.seq_len, length, count))
                        found = _without_values(measurement, str(missing_reason(None, model, length, plan)))
                    else:
                        advance = partial(progress, f"{what} {name}")
                        found = _measured(measurement, replace(inspected, advance=advance))
                    here = at_length | {"measurement": name, "evaluated_at": datetime.now(UTC).replace(microsecond=0)}
                    rows += [here | row for row in found]
                yield rows


def _measured(measurement: type[Measurement], inspected: Inspected) -> list[dict[str, Any]]:
    if (reason := measurement.refusal(inspected)) is not None:
        return _without_values(measurement, reason)
    try:
        values = list(measurement.measure(inspected))
    except (MemoryError, RuntimeError) as error:
        if not of_memory(error):
            raise
        return _without_values(measurement, MEMORY)
    return [
        {
            "quantity": value.quantity, "layer": value.layer, "head": value.head, "at": value.at,
            "value": value.mean, "error": value.error,
        }
        for value in values
    ]  # fmt: skip


def _without_values(measurement: type[Measurement], reason: str) -> list[dict[str, Any]]:
    return [{"quantity": name, "reason": reason} for name in measurement.quantities]
