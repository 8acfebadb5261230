"""Where documents come from: the embedded corpus, local files, Hugging Face datasets."""

import glob
import json
import sysconfig
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
SYNTHETIC = "synthetic:"


@dataclass(frozen=True)
class Document:
    """One text. Its id says where it came from and is unique in its source."""

    id: str
    text: str


class Source(Protocol):
    """Documents in a fixed order; each iteration starts anew."""

    def __iter__(self) -> Iterator[Document]: ...


def open_source(spec: str, text_field: str = "text") -> Source:
    """A source from `stdlib`, `synthetic:PROCESS`, a file, folder or glob, or `hf:NAME[:CONFIG[:SPLIT]]`.

    Raises ValueError where there is no such source; reading one may raise ValueError too, naming the document.
    """
    if spec == "stdlib":
        return StandardLibrary()
    if spec.startswith(SYNTHETIC):
        from extrapolate.data import synthetic

        return synthetic.build(spec.removeprefix(SYNTHETIC))
    if spec.startswith("hf:"):
        return HuggingFace(spec.removeprefix("hf:"), text_field)
    return LocalFiles(spec, text_field)


class StandardLibrary:
    """The running interpreter's own standard-library sources, without its tests: real text, nothing downloaded."""

    # Tests, and what distributions add: the corpus should differ between builds as little as it can. And generated
    # tables: the code pages repeat each other, so that a held-out one would stand in the training text as well.
    EXCLUDED = frozenset(
        {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "_bundled", "lib-dynload"}
        | {"encodings", "pydoc_data", "entities.py"}
    )

    def __init__(self) -> None:
        self.root = Path(sysconfig.get_path("stdlib"))
        self.files = sorted(
            path
            for path in self.root.rglob("*.py")
            if not self.EXCLUDED.intersection(path.relative_to(self.root).parts)
            and not path.name.startswith("_sysconfigdata")
            and path.stat().st_size > 0
        )
        if not self.files:
            raise ValueError(
                f"this Python has no standard-library sources at {self.root} (a zipped or stripped build?); "
                "name a source of your own: extrapolate tokenize FOLDER --out DIR"
            )

    def __iter__(self) -> Iterator[Document]:
        for path in self.files:
            with tokenize.open(path) as file:
                yield Document(path.relative_to(self.root).as_posix(), file.read())


class LocalFiles:
    """`.txt` and `.md` files (a document each), `.jsonl` and `.parquet` files (a document a row)."""

    def __init__(self, spec: str, text_field: str) -> None:
        self.text_field = text_field
        spec = str(Path(spec).expanduser())
        path = Path(spec)
        if path.is_dir():
            self.root, self.files = (
                path,
                sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file()),
            )
            if not self.files:
                raise ValueError(f"{spec} holds no {', '.join(SUFFIXES)} file")
        elif path.is_file():
            self.root, self.files = path.parent, [path]
        else:
            self.root = Path()
            self.files = sorted(p for p in map(Path, glob.glob(spec, recursive=True)) if p.is_file())
            if not self.files:
                raise ValueError(
                    f"no source '{spec}': not stdlib, synthetic:NAME, hf:NAME, a file, a folder, or a glob that matches"
                )
        for file in self.files:
            if file.suffix not in SUFFIXES:
                raise ValueError(f"{file}: cannot read '{file.suffix}' files; expected {', '.join(SUFFIXES)}")
            if file.stat().st_size == 0:
                raise ValueError(f"{file} is empty; remove it or name the files to use")

    def __iter__(self) -> Iterator[Document]:
        for file in self.files:
            name = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else file.as_posix()
            if file.suffix == ".parquet":
                yield from self._parquet(file, name)
            elif file.suffix == ".jsonl":
                yield from self._jsonl(file, name)
            else:
                yield Document(name, _checked(file.read_bytes(), str(file)))

    def _jsonl(self, file: Path, name: str) -> Iterator[Document]:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                place = f"{file}, line {number}"
                text = _checked(line, place)
                if not text.strip():
                    continue
                try:
                    row = json.loads(text)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{place} is not valid JSON: {error}") from error
                if not isinstance(row, dict):
                    raise ValueError(f"{place} is not a JSON object")
                yield Document(f"{name}:{number}", _field(row, self.text_field, place))

    def _parquet(self, file: Path, name: str) -> Iterator[Document]:
        import pyarrow as pa

        try:
            yield from self._parquet_rows(file, name)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not a Parquet file, or is damaged: {error}") from error

    def _parquet_rows(self, file: Path, name: str) -> Iterator[Document]:
        import pyarrow.parquet as pq

        table = pq.ParquetFile(file)
        if self.text_field not in table.schema_arrow.names:
            raise ValueError(_missing(self.text_field, table.schema_arrow.names, str(file)))
        number = 0
        for batch in table.iter_batches(batch_size=256, columns=[self.text_field]):
            for text in batch.column(0).to_pylist():
                yield Document(
                    f"{name}:{number}",
                    _field({self.text_field: text}, self.text_field, f"{file}, row {number}"),
                )
                number += 1


class HuggingFace:
    """A dataset of the Hugging Face Hub, or a local dataset folder, streamed: `NAME[:CONFIG[:SPLIT]]`."""

    def __init__(self, spec: str, text_field: str) -> None:
        self.text_field = text_field
        self.name, _, rest = spec.partition(":")
        config, _, split = rest.partition(":")
        self.config, self.split = config or None, split or "train"
        if not self.name:
            raise ValueError("hf: names no dataset: expected hf:NAME[:CONFIG[:SPLIT]]")

    def __iter__(self) -> Iterator[Document]:
        import datasets

        number = 0
        try:
            rows = iter(datasets.load_dataset(self.name, self.config, split=self.split, streaming=True))
            while (row := next(rows, None)) is not None:
                yield Document(str(number), _field(row, self.text_field, f"row {number}"))
                number += 1
        except (OSError, ValueError, RuntimeError) as error:
            raise ValueError(f"hf:{self.name} cannot be read: {error}") from error


def _checked(raw: bytes, place: str) -> str:
    if b"\0" in raw:
        raise ValueError(f"{place} is binary, not text")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{place} is not UTF-8 text: {error}") from error


def _field(row: dict[str, object], field: str, place: str) -> str:
    if field not in row:
        raise ValueError(_missing(field, list(row), place))
    text = row[field]
    if not isinstance(text, str):
        raise ValueError(f"{place}: '{field}' is {type(text).__name__}, not text")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
        raise ValueError(f"{place}: '{field}' is not valid Unicode: {error}") from error
    return text


def _missing(field: str, names: list[str], place: str) -> str:
    return f"{place} has no '{field}'; it has {', '.join(names) or 'nothing'}: choose one with --text-field"
