"""Random damage to a store, a run and its tables: refused with one message, or no number that is read is another."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate import files, results
from extrapolate.data.manifest import SPLITS
from extrapolate.data.shards import sha256
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.runs.run import Run
from extrapolate.training import state
from extrapolate.training.optimizer import optimizer_of

flips, fuzzing = settings.get_profile("flips"), settings.get_profile("fuzzing")


@contextmanager
def damaged(path: Path, content: bytes) -> Iterator[None]:
    """The file has another content for a while."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def refusal(read: Callable[[], object], *words: str) -> str:
    """The message, which has one of the words; empty if it is read. Any other exception than UserError is a failure."""
    try:
        read()
    except UserError as error:
        assert any(word in str(error) for word in words)  # noqa: PT017 (both outcomes are right)
        assert len(str(error)) < 1000  # noqa: PT017
        return str(error)
    return ""


class TestStore:
    @pytest.fixture(scope="class")
    def small(self, word_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
        return Store.open(Path(shutil.copytree(word_store.path, tmp_path_factory.mktemp("faults") / "store")))

    @staticmethod
    def read(path: Path) -> Store:
        """Reads all of a store, as commands do."""
        store = Store.open(path)
        store.tokenizer()
        for name in SPLITS:
            split = store.split(name)
            tokens = split.slice(0, split.n_tokens)
            assert int(tokens.max(initial=0)) < store.vocab_size
            assert len(split.ids) == len(split.lengths) == len(split.bytes)
        return store

    def check_refused_or_read(self, store: Store) -> None:
        refusal(lambda: self.read(store.path), "damaged", "another version")

    def test_it_is_whole_otherwise(self, small: Store) -> None:
        assert self.read(small.path).manifest == small.manifest

    @flips
    @given(data=st.data())
    def test_every_flipped_bit_is_refused(self, small: Store, damage: Any, data: st.DataObject) -> None:
        names = sorted(path.name for path in small.path.iterdir())
        assert len(names) == 6
        path = small.path / data.draw(st.sampled_from(names))
        with damaged(path, data.draw(damage.flipped(path.read_bytes()))), pytest.raises(UserError, match="damaged"):
            self.read(small.path)

    @fuzzing
    @given(data=st.data())
    def test_a_manifest_of_any_bytes(self, small: Store, damage: Any, data: st.DataObject) -> None:
        path = small.path / "manifest.json"
        with damaged(path, data.draw(damage.mutated(path.read_bytes()))):
            self.check_refused_or_read(small)

    @fuzzing
    @given(data=st.data())
    def test_a_sealed_manifest_that_says_anything(self, small: Store, damage: Any, data: st.DataObject) -> None:
        path = small.path / "manifest.json"
        with damaged(path, b""):
            files.write_sealed(path, data.draw(damage.mutated_json(small.manifest)))
            self.check_refused_or_read(small)

    @fuzzing
    @given(data=st.data())
    def test_a_shard_of_any_bytes_that_has_its_hash(self, small: Store, damage: Any, data: st.DataObject) -> None:
        path, manifest = small.path / "test-00000.arrow", small.path / "manifest.json"
        with damaged(path, data.draw(damage.mutated(path.read_bytes()))), damaged(manifest, b""):
            content = {"bytes": path.stat().st_size, "sha256": sha256(path)}
            files.write_sealed(manifest, small.manifest | {"files": small.manifest["files"] | {path.name: content}})
            self.check_refused_or_read(small)


class TestRun:
    """Weights, a state and the run's own tokenizer."""

    @pytest.fixture(scope="class")
    def run(self, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
        """A run that was stopped after a step more."""
        run = Run.open(Path(shutil.copytree(trained / "rope", tmp_path_factory.mktemp("faults") / "rope")))
        model = run.build_model()
        optimizer = optimizer_of(model, run.trained.training)
        model.loss(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long)).backward()
        optimizer.step()
        state.save(run.path / "state.safetensors", model, optimizer, state.ResumePoint(1, 0, "0"), run.config_sha256)
        return run

    @pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors", "tokenizer.json"])
    @flips
    @given(data=st.data())
    def test_every_flipped_bit_is_refused(self, run: Run, damage: Any, name: str, data: st.DataObject) -> None:
        def restored() -> object:
            model = run.build_model()
            optimizer = optimizer_of(model, run.trained.training)
            return state.restore(run.path / name, model, optimizer, run.config_sha256)

        readers: dict[str, Callable[[], object]] = {
            "model.safetensors": lambda: Run.open(run.path).model,
            "state.safetensors": restored,
            "tokenizer.json": lambda: Run.open(run.path).tokenizer,
        }
        readers[name]()
        content = data.draw(damage.flipped((run.path / name).read_bytes()))
        with damaged(run.path / name, content), pytest.raises(UserError, match=name):
            readers[name]()


FIXTURE = Path(__file__).parents[1] / "fixtures/rope"
IN_FIXTURE = {"evals": results.EVALS, "eval_documents": results.EVAL_DOCUMENTS, "eval_probes": results.PROBES}
TABLES = IN_FIXTURE | {"inspections": results.INSPECTIONS}
READERS: dict[str, Callable[[Path], Any]] = {
    **{name: lambda path, table=table: results.read(path, table) for name, table in TABLES.items()},
    "metrics": results.read_frame,
}


class TestTables:
    @pytest.fixture(scope="class")
    def path(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("faults") / "t.parquet"

    @pytest.fixture(scope="class")
    def contents(self, path: Path) -> dict[str, bytes]:
        """A small file of each kind."""
        made = {}
        for name, table in IN_FIXTURE.items():
            results.write(path, results.read(FIXTURE / f"{name}.parquet", table)[:6], table)
            made[name] = path.read_bytes()
        found = {"measurement": "removal", "quantity": "rise", "value": 0.5, "error": 0.1, "n_windows": 2}
        rows = [
            {column.name: row.get(column.name) for column in results.INSPECTIONS.columns} | found | {"at": float(at)}
            for at, row in enumerate(results.read(FIXTURE / "evals.parquet", results.EVALS)[:6])
        ]
        results.write(path, rows, results.INSPECTIONS)
        made["inspections"] = path.read_bytes()
        results.write_frame(path, results.read_frame(FIXTURE / "metrics.parquet"))
        return made | {"metrics": path.read_bytes()}

    @pytest.mark.parametrize("name", READERS)
    @flips
    @given(data=st.data())
    def test_a_flipped_bit_is_refused_or_changes_nothing(
        self, contents: dict[str, bytes], path: Path, damage: Any, name: str, data: st.DataObject
    ) -> None:
        """Of the pages; one in the footer can at most make an optional column another one."""
        path.write_bytes(contents[name])
        whole = READERS[name](path)
        footer = len(contents[name]) - 8 - int.from_bytes(contents[name][-8:-4], "little")
        path.write_bytes(data.draw(damage.flipped(contents[name][:footer])) + contents[name][footer:])
        found: list[Any] = []
        if not refusal(lambda: found.append(READERS[name](path)), "t.parquet"):
            assert found[0].equals(whole) if isinstance(whole, pd.DataFrame) else found[0] == whole

    @pytest.mark.parametrize("name", READERS)
    @fuzzing
    @given(data=st.data())
    def test_any_bytes_are_refused_or_read(
        self, contents: dict[str, bytes], path: Path, damage: Any, name: str, data: st.DataObject
    ) -> None:
        """Of a file that another program wrote, without checksums."""
        sink = pa.BufferOutputStream()
        pq.write_table(pq.read_table(pa.BufferReader(contents[name])), sink)
        path.write_bytes(data.draw(damage.mutated(sink.getvalue().to_pybytes())))
        self.check_refused_or_read(name, path)

    @fuzzing
    @given(data=st.data())
    def test_metadata_that_says_anything(self, path: Path, data: st.DataObject) -> None:
        names = st.sampled_from(["extrapolate_format", "extrapolate_version", "pandas"])
        metadata = data.draw(st.dictionaries(names, st.binary(max_size=70), max_size=3))
        pq.write_table(pq.read_table(FIXTURE / "evals.parquet").replace_schema_metadata(metadata), path)
        self.check_refused_or_read("evals", path)

    @staticmethod
    def check_refused_or_read(name: str, path: Path) -> None:
        found: list[Any] = []
        refusal(lambda: found.append(READERS[name](path)), "t.parquet")
        for row in found[0] if found and name in TABLES else []:
            assert all(row[column.name] is not None for column in TABLES[name].columns if column.required)
