"""Prepares cells before anything runs: opens stores, resolves configurations and checks evaluations."""

import math
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from extrapolate.api.evaluating import works
from extrapolate.api.tokenize import DEFAULT_STORE, default_store, store_there, store_with
from extrapolate.data.build import StoreSettings
from extrapolate.data.special_tokens import SpecialTokens
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.evaluation import lengths, plans
from extrapolate.evaluation.rows import label_of
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.window_losses import Inputs
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.interop.trackers import UNTRACKED, Tracking
from extrapolate.model.model import Model
from extrapolate.names import AS_TRAINED
from extrapolate.progress import Progress
from extrapolate.results import kept as results
from extrapolate.runs import resolve
from extrapolate.runs.config import TrainedConfig, differences
from extrapolate.runs.resolve import TrainingRequest
from extrapolate.runs.run import USER_ENCODING, Run, model_of
from extrapolate.runs.weights import Checkpoint
from extrapolate.studies.cells import Cell, matches
from extrapolate.studies.study import Place, Study
from extrapolate.training.fine_tuning import continued
from extrapolate.training.half import kept
from extrapolate.training.job import run_in


@dataclass(frozen=True)
class Resolved:
    """A cell with everything that determines its weights, its folder, and how it is evaluated.

    evaluation: with the study's extensions that apply. left_out: the others, each with the reason. models: its names in
    tables, by the extension that is applied. parameters: of the model. evaluation_inputs: the tokens that the
    evaluation reads, by their windows. tracking: the tracker that the training logs to. code: SHA-256 hashes of the
    study's Python files when they were checked; other versions do not run.
    """

    cell: Cell
    path: Path
    request: TrainingRequest
    config: TrainedConfig
    user_file: Path | None
    data: Path
    own_extension: ExtensionStack | None
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    left_out: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    parameters: int = 0
    evaluation_inputs: Inputs = field(default_factory=Counter)
    tracking: Tracking = UNTRACKED
    code: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of the cell."""
        return self.cell.name

    @property
    def lr(self) -> float:
        """The peak learning rate, which may come from the preset."""
        return self.config.training.lr

    @property
    def special_tokens(self) -> SpecialTokens:
        """The token that ends the documents of its store."""
        return SpecialTokens(eos=(Store.open(self.data).manifest["eos_id"],))

    def build_model(self, *, drawn: bool = False) -> Model:
        """The model without weights except in its encodings, or with fresh ones if `drawn`."""
        return model_of(self.config, self.user_file, drawn=drawn)

    def checkpoints(self, which: str) -> list[Checkpoint]:
        """Stands for the weights that there will be: as many as the run will keep, all alike."""
        training, keep_every = self.config.training, self.request.keep_every
        if which == "half":
            count = int(kept(self.config, self.request.half))
        else:
            count = 1 + ((training.tokens - 1) // keep_every if which == "all" and keep_every is not None else 0)
        return [Checkpoint(self.path, 0, 0, "")] * count

    def evaluated(self, store: Store, study: Study) -> "Resolved":
        """The cell with how the study evaluates it. Raises UserError if it cannot be."""
        model = self.build_model()
        asked = dict.fromkeys(text for text, of in study.extensions if matches(self.cell.settings, of))
        left_out = plans.left_out(self, model, tuple(asked))
        settings = replace(study.evaluation, extend=tuple(text for text in asked if text not in left_out))
        lengths.check_settings(settings, self.config.seq_len)
        results.check(self.path)
        parts = works(self, store, settings, model)
        applied = plans.extensions_to_evaluate(self, model, settings.extend)
        labels = {name: label_of(self.config, model, one.joined(), one.taken_off) for name, one in applied.items()}
        inputs = sum((part.inputs(part.items) for part in parts), Counter())
        return replace(
            self, evaluation=settings, left_out=left_out, models=labels, parameters=model.parameter_count(),
            evaluation_inputs=inputs,
        )  # fmt: skip


def resolve_cells(
    study: Study, cells: Sequence[Cell], stores: Mapping[str | None, Store], runs: Path
) -> list[Resolved]:
    """Prepares every cell. stores: by the cells' `data`. runs: the folder of all runs.

    Raises UserError, with the line of the study's file, if a cell cannot be trained or evaluated, or its folder holds a
    run with other settings.
    """
    found: dict[str, Resolved] = {}
    asked = [text for text, _ in study.extensions]
    for number in range(len(asked)):
        try:
            plans.check_files(asked[: number + 1])
        except UserError as error:
            raise UserError(f"{study.at('evaluate', 'extend', number)}: {error}") from None
    for cell in cells:
        store = stores[cell.settings.get("data")]
        # A cell that continues another has the settings of that run, except for its own table.
        named = cell.settings if cell.continues is None else study.fine_tunings[int(cell.place[1])].settings
        request = replace(
            TrainingRequest.of(named), extend=cell.extend, keep_every=cell.settings.get("keep_every"),
            half=cell.settings.get("half"),
        )  # fmt: skip
        own: ExtensionStack | None = None
        try:
            if cell.continues is None:
                config, user_file = resolve.resolve(request, store)
            else:
                config, user_file, own = _continued(found[cell.continues], cell, request)
        except UserError as error:
            raise UserError(f"{_where(study, cell, error.field)}: cell {cell.name}: {error}") from None
        try:
            found[cell.name] = Resolved(cell, runs / cell.name, request, config, user_file, store.path, own).evaluated(
                store, study
            )
        except UserError as error:
            raise UserError(f"{study.at('evaluate', error.field or '')}: cell {cell.name}: {error}") from None
    ready = list(found.values())
    _check_extensions(study, ready)
    _check_unchanged(ready)
    return ready


def _continued(
    parent: Resolved, cell: Cell, request: TrainingRequest
) -> tuple[TrainedConfig, Path | None, ExtensionStack | None]:
    """The configuration that a cell will have once its parent is trained, except for the hash of the weights."""
    origin = {
        "run": parent.name, "weights_sha256": "", "config_hash": parent.config.config_hash(),
        "label": parent.models[AS_TRAINED], "seq_len": parent.config.seq_len,
    }  # fmt: skip
    config, user_file, own = continued(
        parent.config, parent.name, parent.user_file, parent.own_extension, origin, request
    )
    if config.encoding.file_sha256 is not None:  # it will be the copy in the parent's folder
        name = f"{USER_ENCODING}:{config.encoding.name.rpartition(':')[2]}"
        config = config.model_copy(update={"encoding": config.encoding.model_copy(update={"name": name})})
    return config, user_file, own


def _where(study: Study, cell: Cell, field: str | None) -> str:
    """The line of the setting that an error is about, if it is known."""
    name = field or ("encoding" if cell.continues is None else "extend")
    places: list[Place] = [(*cell.place, name)] if cell.place != ("axes",) else []
    if cell.continues is None:
        axis = study.axes.get(name, ())
        number = axis.index(cell.settings[name]) if cell.settings.get(name) in axis else 0
        places += [("axes", name, number), ("axes", name), ("base", name)]
    return study.at(*next((place for place in places if place in study.lines), cell.place))


def _check_extensions(study: Study, cells: Sequence[Resolved]) -> None:
    """Raises UserError if an extension is for no cell, or applies to none."""
    for number, (text, of) in enumerate(study.extensions):
        mine = [cell for cell in cells if matches(cell.cell.settings, of)]
        where = study.at("evaluate", "extend", number)
        if not mine:
            raise UserError(f"{where}: no cell has the settings that {text} is for")
        if not study.of_others and all(text in cell.left_out for cell in mine):
            raise UserError(f"{where}: {text} applies to no cell: {mine[0].left_out[text]}")


def _not_kept(run: Run, keep_every: int | None) -> list[str]:
    """What is wrong if the first checkpoint of a finished run is not where `keep_every` would put it."""
    training = run.trained.training
    per_step = training.batch_size * training.seq_len
    first, last = math.ceil((keep_every or training.tokens) / per_step), training.steps
    at = run.checkpoints("all")[0].step
    if keep_every is None or at == min(first, last):
        return []
    kept = f"its first checkpoint is at {at * per_step:,} tokens" if at < last else "it kept no checkpoints"
    return [f"keep_every: {kept}"]


def _check_unchanged(cells: Sequence[Resolved]) -> None:
    """Raises UserError if a folder holds a run whose settings are not those of its cell."""
    changed: list[str] = []
    of = {cell.name: cell for cell in cells}
    for cell in cells:
        there = run_in(cell.path)
        if there is None:
            continue
        known, now = there.trained, cell.config
        different = []
        if known.origin is not None and now.origin is not None:
            now = now.model_copy(update={"origin": known.origin})
            parent = run_in(of[cell.cell.continues or ""].path)
            if parent is None or not parent.finished:
                different = ["the run that it continues is gone"]
            elif parent.checkpoints("last")[-1].sha256 != known.origin.weights_sha256:
                different = ["the run that it continues has other weights now"]
        different += differences(known, now)
        if cell.evaluation.checkpoint == "all" and there.finished:
            different += _not_kept(there, cell.request.keep_every)
        if different:
            changed.append(f"{cell.path} ({'; '.join(different)})")
    if changed:
        first, more = changed[:6], len(changed) - 6
        raise UserError(
            f"the study was changed, and {len(changed)} of its runs were trained with other settings: "
            f"{', '.join(first)}{f', and {more} more' if more > 0 else ''}; give another `out`, or delete these folders"
        )


def open_stores(
    study: Study, cells: Sequence[Cell], folder: Path, progress: Progress, *, make: bool
) -> dict[str | None, Store]:
    """The stores of cells by their `data`. make: make missing ones, but only in `folder` or the current folder.

    Raises UserError, with the line of the study's file, if one is missing and cannot be made here, or is not the store
    that the file describes.
    """
    found: dict[str | None, Store] = {}
    for cell in cells:
        path = cell.settings.get("data")
        if path in found:
            continue
        try:
            found[path] = _store(study, path, folder, progress, make)
        except UserError as error:
            wanted: list[Place] = [(*cell.place, "data"), ("axes", "data"), ("base", "data")]
            raise UserError(f"{study.at(*next((one for one in wanted if one in study.lines), ()))}: {error}") from None
    return found


def _store(study: Study, path: str | None, folder: Path, progress: Progress, make: bool) -> Store:
    out = DEFAULT_STORE if path is None else Path(path)
    settings = StoreSettings() if path is None else study.stores.get(path)
    if settings is None:
        if out.exists():
            return Store.open(out)
        raise UserError(
            f"there is no token store {out}: make it with extrapolate tokenize, or say how in the file: [[store]], "
            f"path = '{out}', source = ..."
        )
    place, own, here = (Path(os.path.realpath(one)) for one in (out, folder, "."))  # where links lead
    within = place.is_relative_to(own) or place.is_relative_to(here)
    if not out.exists():
        command = f"make it with: {_command(settings, out)}"
        if not make:
            raise UserError(f"there is no token store {out}, and a dry run writes nothing: {command}")
        if not within:
            raise UserError(f"{out} is neither in the study's folder {folder} nor in the current one: {command}")
    if path is None:
        return default_store(progress)
    return store_with(settings, out, progress) if make and within else store_there(settings, out, progress)


def _command(settings: StoreSettings, out: Path) -> str:
    """The command that makes a store."""
    words = ["extrapolate", "tokenize", settings.source, "--out", str(out)]
    for name, value in vars(settings).items():
        if name == "source" or value == getattr(StoreSettings(), name):
            continue
        flag = name.replace("_", "-")
        words += [f"--{'no-' if value is False else ''}{flag}", *([] if value is False else [str(value)])]
    return shlex.join(words)
