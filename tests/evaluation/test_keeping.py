"""What a run's folder keeps: rows of the weights that are in it."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import extrapolate as xt
from extrapolate import files, results
from extrapolate.names import DOCUMENTS_TABLE, INSPECTIONS_TABLE, PROBES_TABLE, TASKS_TABLE, TEXT_TABLE
from extrapolate.runs.run import Run
from extrapolate.training.loop import Training

FEW = ["--factors", "1,2", "--max-targets", "64", "--protocol", "windows"]
ALL = {**results.KEPT, DOCUMENTS_TABLE: results.EVAL_DOCUMENTS}


def rows_of(run, file=TEXT_TABLE):
    return results.read(run / file, ALL[file])


def evaluate(cli, run, *flags):
    return cli("eval-lengths", run, *FEW, *flags).succeeded()


def fill(run):
    """Tables of every kind with rows of the run."""
    losses = rows_of(run)[:1]
    own = {"task": "t", "metric": "acc", "filter": "none", "shots": 0, "value": 1.0, "n_questions": 1, "n_cut": 0}
    own |= {"lm_eval_version": "1", "measurement": "m", "quantity": "q", "n_windows": 2, "probe": "copy", "depth": 0.0}
    own |= dict.fromkeys(("control_accuracy", "chance"), 0.5) | dict.fromkeys(("n_trials", "n_answers"), 1)
    for file in (PROBES_TABLE, TASKS_TABLE, INSPECTIONS_TABLE):
        columns = [column.name for column in ALL[file].columns]
        results.write(run / file, [{name: (row | own).get(name) for name in columns} for row in losses], ALL[file])


@pytest.fixture(scope="module")
def filled_once(trained, tmp_path_factory):
    """The run `rope`, evaluated at all checkpoints, with tables of every kind. Not to be changed: see `filled`."""
    run = shutil.copytree(trained / "rope", tmp_path_factory.mktemp("filled") / "rope")
    xt.evaluate(run, factors=(1, 2), max_targets=64, protocols=["windows"], checkpoint="all", device="cpu")
    fill(run)
    return run


@pytest.fixture
def filled(filled_once, tmp_path):
    """A copy of `filled_once` in the test's own folder."""
    return shutil.copytree(filled_once, tmp_path / "ckpt" / "rope")


def change_weights(run, steps):
    """Makes the rows of these steps those of weights that are gone."""
    for file, table in results.KEPT.items():
        gone = {"weights_sha256": "gone"}
        results.change(run / file, table, lambda row, gone=gone: row | (gone if row["step"] in steps else {}))


def test_rows_of_an_earlier_training_go_from_every_table(cli, filled, tiny):
    (filled / "model.safetensors").unlink()
    shutil.rmtree(filled / "checkpoints")
    cli("train", "--pe", "rope", *tiny, "--tokens", 1024, "--out", filled).succeeded()
    ended = evaluate(cli, filled)
    named = "evals.parquet, eval_probes.parquet, eval_tasks.parquet, inspections.parquet"
    assert f"{filled}: dropped results of an earlier training in this folder, from {named}" in ended.err
    (now,) = Run.open(filled).checkpoints("last")
    rows, documents = rows_of(filled), rows_of(filled, DOCUMENTS_TABLE)
    assert {(row["step"], row["weights_sha256"]) for row in rows} == {(now.step, now.sha256)}
    assert {row["step"] for row in documents} == {now.step}
    assert not any((filled / file).exists() for file in (PROBES_TABLE, TASKS_TABLE, INSPECTIONS_TABLE))
    assert "dropped" not in evaluate(cli, filled).err
    cli("report", filled).succeeded()


def test_results_of_an_earlier_training_are_in_no_report(cli, filled, tiny, tmp_path):
    shutil.copytree(filled, tmp_path / "both" / "kept")
    (filled / "model.safetensors").unlink()
    shutil.rmtree(filled / "checkpoints")
    cli("train", "--pe", "rope", *tiny, "--tokens", 1024, "--out", filled).succeeded()
    stale = "no result is of the weights that are there now"
    assert f"rope: {stale}; evaluate again" in cli("report", filled).error()
    weights = (filled / "model.safetensors").rename(filled / "state.safetensors")  # as if it were not at its end
    assert f"rope: {stale}; evaluate again" in cli("report", filled).error()
    kept = weights.rename(filled.parent / "weights")  # the configuration alone says whose results are there
    assert f"rope: {stale}; evaluate again" in cli("report", filled).error()
    kept.rename(filled / "model.safetensors")
    filled.rename(tmp_path / "both" / "rope")
    assert f"left out, for {stale}" in cli("report", tmp_path / "both").succeeded().err
    evaluate(cli, tmp_path / "both" / "rope")
    assert stale not in cli("report", tmp_path / "both").err


def test_a_training_that_was_killed_before_it_saved_a_state_began_again(cli, filled, tiny, monkeypatch):
    """Its rows are of weights that are gone."""
    (filled / "model.safetensors").unlink()
    cli("report", filled).succeeded()  # a folder that keeps its results alone

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "_step", killed)
    cli("train", "--pe", "rope", *tiny, "--tokens", 1024, "--out", filled)
    monkeypatch.undo()
    assert not list(filled.glob("*.safetensors"))
    assert "no result is of the weights that are there now; evaluate again" in cli("report", filled).error()


@pytest.mark.parametrize("name", ["model.safetensors", "metrics.parquet"])
def test_results_are_not_those_of_a_training_that_was_killed_at_its_end(cli, filled, tiny, monkeypatch, name):
    """Whichever file could not be written: without the weights they are of others, without the metrics they go on."""
    (filled / "model.safetensors").unlink()
    write = files.write_atomically

    def killed(path, *arguments):
        if path.name == name:
            raise OSError(27, "File too large", str(path))
        write(path, *arguments)

    monkeypatch.setattr(files, "write_atomically", killed)
    flags = ["--pe", "rope", *tiny, "--tokens", 1024, "--out", filled]
    assert "File too large" in cli("train", *flags).err
    monkeypatch.undo()
    assert "no result is of the weights that are there now; evaluate again" in cli("report", filled).error()
    cli("train", *flags, "--resume").succeeded()
    assert results.read_frame(filled / "metrics.parquet")["step"].max() == 2


def test_an_earlier_checkpoint_in_the_place_of_the_last_has_not_its_losses(cli, filled):
    last, *_ = sorted((filled / "checkpoints").glob("*.safetensors"))
    cli("eval-lengths", filled, *FEW, "--checkpoint", "all").succeeded()
    shutil.copyfile(last, filled / "model.safetensors")
    assert "no result is of the weights that are there now; evaluate again" in cli("report", filled).error()


def test_results_are_not_those_of_weights_that_another_program_wrote(cli, filled):
    weights = filled / "model.safetensors"
    save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights)
    assert "no result is of the weights that are there now; evaluate again" in cli("report", filled).error()
    assert "was written by another program" in cli("eval-lengths", filled, *FEW).error()


@pytest.mark.parametrize("what", ["half", "pickle"])
def test_results_are_not_those_of_damaged_weights(cli, filled, what):
    weights = filled / "model.safetensors"
    if what == "half":
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    else:
        torch.save({}, weights)
    assert "no result is of the weights that are there now; evaluate again" in cli("report", filled).error()
    assert "damaged" in cli("eval-lengths", filled, *FEW).error()


def test_checkpoints_of_an_earlier_training_are_not_those_of_the_next(cli, filled, tiny):
    kept = filled / "checkpoints"
    assert [one.step for one in Run.open(filled).checkpoints("all")] == [4, 8, 10]
    (filled / "model.safetensors").unlink()
    cli("train", "--pe", "rope", *tiny, "--out", filled).succeeded()
    assert [one.step for one in Run.open(filled).checkpoints("all")] == [10]
    assert not list(kept.iterdir())


@pytest.mark.parametrize("steps", ["last", "all"])
def test_rows_of_other_weights_of_the_same_settings_go_too(cli, filled, steps):
    kept = {row["step"] for row in rows_of(filled)}
    assert len(kept) > 1
    change_weights(filled, {max(kept)} if steps == "last" else kept)
    shutil.rmtree(filled / "checkpoints")
    assert "dropped" in evaluate(cli, filled).err
    assert {row["step"] for row in rows_of(filled)} == {max(kept)}  # nothing tells of which weights the others are
    assert {row["step"] for row in rows_of(filled, DOCUMENTS_TABLE)} == {max(kept)}


def test_rows_of_other_weights_of_a_step_that_is_there_go(cli, filled):
    change_weights(filled, {4})
    assert "dropped" in evaluate(cli, filled).err
    assert {row["step"] for row in rows_of(filled)} == {8, 10}


def stop_after(filled, step):
    """Leaves the rows of one step, as an evaluation of all checkpoints does that is stopped after the first."""
    for file, table in ALL.items():
        results.change(filled / file, table, lambda row: row if row["step"] == step else None)


def test_rows_of_an_early_step_alone_stay_or_go_with_their_weights(cli, filled):
    """Which training they are of, no row of its last weights says, nor, at the end, a file of their own."""
    gone = shutil.copytree(filled, filled.with_name("gone"))
    for run in (filled, gone):
        stop_after(run, 4)
    assert "dropped" not in evaluate(cli, filled).err
    assert {row["step"] for row in rows_of(filled)} == {4, 10}
    for run in (filled, gone):
        shutil.rmtree(run / "checkpoints")
    assert "dropped" not in evaluate(cli, filled).err
    assert {row["step"] for row in rows_of(filled)} == {4, 10}
    assert "dropped results of an earlier training" in evaluate(cli, gone).err
    assert {row["step"] for row in rows_of(gone)} == {10}


def test_a_damaged_checkpoint_along_the_way_is_not_in_the_way_of_the_last(cli, filled):
    (filled / "checkpoints/step-00000004.safetensors").write_bytes(b"damaged")
    assert "dropped" not in evaluate(cli, filled).err
    assert {row["step"] for row in rows_of(filled)} == {4, 8, 10}


def test_rows_of_these_weights_stay_as_they_are(cli, filled, contents):
    before = contents(filled)
    assert "dropped" not in evaluate(cli, filled, "--extend", "pi:factor=2").err
    after = contents(filled)
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {TEXT_TABLE, DOCUMENTS_TABLE}
    assert {row["step"] for row in rows_of(filled)} == {4, 8, 10}


def test_a_renamed_folder_keeps_its_rows_under_its_name(cli, filled):
    run, before = filled.rename(filled.with_name("new")), rows_of(filled.with_name("new"))
    evaluate(cli, run, "--extend", "pi:factor=2")
    assert [row for file in ALL for row in rows_of(run, file) if row["run"] != "new"] == []
    old = [row["loss"] for row in before]
    assert [row["loss"] for row in rows_of(run) if row["extension"] == "as-trained"] == pytest.approx(old)


def test_an_inspection_drops_rows_of_other_weights_too(cli, filled):
    change_weights(filled, {4, 8, 10})
    flags = ["--factors", "1", "--windows", "2", "--measure", "truncation"]
    assert "dropped results of an earlier training" in cli("inspect", filled, *flags).succeeded().err
    assert not (filled / PROBES_TABLE).exists()
