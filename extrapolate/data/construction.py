"""A token store under construction, which another process can resume from disk.

The folder has the finished shards, and until the end also the documents that may be held out (`long` shards), a record
of every document, sketches of passages, the digests seen so far, and `progress.json`, which says how much of each file
is valid.
"""

import hashlib
from bisect import bisect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from tokenizers import Tokenizer

from extrapolate import files
from extrapolate.data import near_duplicates, shards
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.documents import OTHER
from extrapolate.data.heldout import HeldOut
from extrapolate.data.manifest import SPLITS, TOKENIZER, Content, Count
from extrapolate.data.on_disk import Records, Seen
from extrapolate.data.passages import PASSAGE
from extrapolate.data.shards import EMPTY, Shards, content
from extrapolate.data.store import HELDOUT
from extrapolate.data.tokenizing import Encoded
from extrapolate.errors import UserError
from extrapolate.files import FORMAT
from extrapolate.specs.settings import Section

PROGRESS, RECORDS, PASSAGES, SEEN = "progress.json", "documents.bin", "passages.bin", "seen.sqlite"
# A kept document: its hash, its tokens without the end of text, whether it may be held out, and the index of its own
# split in _NAMED.
_RECORD = np.dtype([("digest", "V32"), ("tokens", "<i8"), ("long", "?"), ("named", "u1")])
_NAMED = (None, OTHER, *SPLITS)
_RECORDS_AT_ONCE = 2**16
_ROUND_TRIP_TOKENS = 2**20  # of held-out documents, to decode


class ConstructionState(Section):
    """Progress. `read`: documents read from the source; `read_bytes`: of their text; `records`: documents kept.

    without_text: documents that are null or empty.
    """

    format: int = FORMAT
    made_from: dict[str, Any]
    eos_id: Count
    bound: str | None  # see Learning, in hexadecimal digits; None if the tokenizer was not learned
    read: Count = 0
    read_bytes: Count = 0
    without_text: Count = 0
    records: Count = 0
    passages: Count = 0
    whole: bool = False  # whether the source was read to its end
    train: list[str]
    train_part: dict[str, Count]
    long: list[str]
    files: dict[str, Content]


def can_go_on(folder: Path, made_from: Mapping[str, Any]) -> bool:
    """Whether a folder holds undamaged work on a store of the same source and settings."""
    try:
        progress = _progress(folder)
        if progress is None or progress.made_from != made_from:
            return False
        for name, there in progress.files.items():
            shards.check_content(folder / name, there.bytes, there.sha256)
        sizes = {RECORDS: progress.records * _RECORD.itemsize, PASSAGES: progress.passages * PASSAGE.itemsize}
        return all(size == 0 or (folder / name).stat().st_size >= size for name, size in sizes.items())
    except (UserError, OSError):
        return False


def _progress(folder: Path) -> ConstructionState | None:
    if not (folder / PROGRESS).is_file():
        return None
    try:
        record = files.read_sealed(folder / PROGRESS)
        files.check_format(folder / PROGRESS, record.get("format"))
        return ConstructionState.model_validate(record)
    except ValidationError as error:
        raise UserError(f"{folder / PROGRESS} is damaged: {error}") from error


def begin(folder: Path, made_from: Mapping[str, Any], tokenizer: Tokenizer, eos: int, bound: bytes | None) -> None:
    """Saves the tokenizer; the work can be resumed from now on. eos: its end-of-text token. bound: see `Learning`."""
    tokenizer.save(str(folder / TOKENIZER))
    files.sync(folder / TOKENIZER)
    there = {TOKENIZER: Content(**content(folder / TOKENIZER))}
    bounded = None if bound is None else bound.hex()
    progress = ConstructionState(
        made_from=dict(made_from), eos_id=eos, bound=bounded, train=[], train_part=EMPTY, long=[], files=there
    )
    files.write_sealed(folder / PROGRESS, progress.model_dump())


class Construction:
    """Builds a store from documents, in a folder on which `begin` was called, now or in an earlier process.

    Documents shorter than `min_doc_tokens` and repeated ones are dropped; the first to exceed `max_tokens` ends the
    store. dedup: whether to look for near-duplicates; documents must then be encoded with their passages.
    """

    def __init__(
        self,
        folder: Path,
        min_doc_tokens: int = 1,
        max_tokens: int | None = None,
        min_heldout_tokens: int = 1,
        dedup: bool = False,
    ) -> None:
        progress = _progress(folder)
        assert progress is not None
        self._folder, self._progress = folder, progress
        self._min_doc_tokens, self._max_tokens = max(1, min_doc_tokens), max_tokens
        for path in folder.iterdir():  # files begun after the last save
            if path.name not in (PROGRESS, RECORDS, PASSAGES, *progress.files):
                path.unlink()
        self.tokenizer = tokenizers.read(folder / TOKENIZER)
        self.vocab_size = max(self.tokenizer.get_vocab().values()) + 1  # ids can have gaps
        self.dtype = "uint16" if self.vocab_size <= 2**16 else "uint32"
        self.eos_id = progress.eos_id
        self.read, self.read_bytes, self.whole = progress.read, progress.read_bytes, progress.whole
        self._without_text = progress.without_text
        self._train = Shards(folder, "train", self.dtype, progress.train, progress.train_part)
        self._long = Shards(folder, "long", self.dtype, progress.long, EMPTY)
        bound = None if progress.bound is None else bytes.fromhex(progress.bound)
        self._heldout, self._seen = HeldOut(min_heldout_tokens, bound), Seen(folder / SEEN)
        self._tokens = self._since_saved = 0
        self._records = Records(folder / RECORDS, _RECORD, progress.records)
        self._passages = Records(folder / PASSAGES, PASSAGE, progress.passages)
        self._dedup = dedup
        for record in self._all_records():
            digest, tokens = record["digest"].tobytes(), int(record["tokens"])
            self._seen.add(digest)
            self._heldout.may_hold(digest, tokens)
            self._tokens += tokens + 1

    def take(self, document_id: str, encoded: Encoded, split: str | None = None) -> bool:
        """Adds the next document of the source; split: see `Document`. Returns False if it exceeds `max_tokens`."""
        count = len(encoded.tokens) // np.dtype(self.dtype).itemsize
        if count > self._min_doc_tokens and self._seen.add(encoded.digest):
            if self._max_tokens is not None and self._tokens + count > self._max_tokens:
                return False
            if self._since_saved + count > shards.SHARD_TOKENS:
                self._save()
            long = self._heldout.may_hold(encoded.digest, count - 1) or split in HELDOUT
            (self._long if long else self._train).add(document_id, encoded.size, encoded.tokens)
            passages = np.frombuffer(encoded.passages, PASSAGE).copy()
            passages["row"] = self._records.count
            self._passages.add(passages)
            self._records.add(np.array([(encoded.digest, count - 1, long, _NAMED.index(split))], _RECORD))
            self._tokens, self._since_saved = self._tokens + count, self._since_saved + count
        self.read, self.read_bytes = self.read + 1, self.read_bytes + encoded.size
        self._without_text += not encoded.size
        return True

    @property
    def documents(self) -> int:
        """How many documents are kept."""
        return self._records.count

    def end(self) -> None:
        """Notes that the source has no more documents."""
        self.whole = True
        self._save()

    def _save(self) -> None:
        """Saves the state, to resume from if this process ends."""
        self._train.end_file()
        self._long.end_file()
        self._records.sync()
        self._passages.sync()
        names = [name for name in (*self._train.names, *self._long.names) if name not in self._progress.files]
        self._progress = ConstructionState(
            made_from=self._progress.made_from, eos_id=self.eos_id, bound=self._progress.bound, read=self.read,
            read_bytes=self.read_bytes, without_text=self._without_text, records=self._records.count,
            passages=self._passages.count, whole=self.whole, train=self._train.names, train_part=self._train.part,
            long=self._long.names,
            files=self._progress.files | {name: Content(**content(self._folder / name)) for name in names},
        )  # fmt: skip
        files.write_sealed(self._folder / PROGRESS, self._progress.model_dump())
        self._since_saved = 0

    def finish(self) -> dict[str, Any]:
        """Assigns the documents that may be held out to splits. Returns the manifest's entries on the files.

        Raises UserError if there are too few documents for testing, validation and training.
        """
        chosen, said = self._chosen()
        parts = {name: Shards(self._folder, name, self.dtype, [], EMPTY) for name in SPLITS} | {"train": self._train}
        late, round_trip = self._place_long(parts, chosen)
        for part in parts.values():
            part.end_file()
        names = [TOKENIZER, *(name for part in parts.values() for name in part.names)]
        there = {name: dict(entry) for name, entry in self._progress.model_dump()["files"].items()}
        splits = {name: {"shards": part.names, **part.part} for name, part in parts.items()}
        return {
            "vocab_size": self.vocab_size,
            "eos_id": self.eos_id,
            "dtype": self.dtype,
            "splits": splits | {"train": splits["train"] | {"late": late}},
            "corpus_hash": self._corpus_hash(chosen),
            "round_trip": round_trip,
            "without_text": self._without_text,
            **said,
            "files": {name: there.get(name) or content(self._folder / name) for name in names},
        }

    def _chosen(self) -> tuple[dict[int, str], dict[str, Any]]:
        """The split of every held-out document, and the manifest's entries on it."""
        own, column = self._own_splits()
        drawn = own or self._heldout.chosen()
        if not self._dedup:
            return drawn, {"split_column": column, "near_duplicates": None}
        found = near_duplicates.find(self._passages, own or self._heldout.rows)
        apart = sum(drawn.get(row, "train") != drawn.get(other, "train") for row, other in found.pairs)
        near = {"pairs": len(found.pairs), "apart": apart}
        return own or self._heldout.chosen(found.pairs, found.common), {"split_column": column, "near_duplicates": near}

    def _own_splits(self) -> tuple[dict[int, str], str | None]:
        """The documents that the source's own column holds out, and the manifest's entry on the column.

        There are none unless it names a split for every document, and all three splits.
        """
        parts = self._records.parts(_RECORDS_AT_ONCE)
        names = {_NAMED[named] for records in parts for named in np.unique(records["named"])}
        if names != set(SPLITS):
            return {}, None if names == {None} else "not used"
        named = ((row, _NAMED[record["named"]]) for row, record in enumerate(self._all_records()))
        return {row: name for row, name in named if name is not None and name in HELDOUT}, "used"

    def _place_long(self, parts: Mapping[str, Shards], chosen: Mapping[int, str]) -> tuple[list[int], dict[str, int]]:
        """Writes every long document into its split.

        Returns the places in the training text of those that go there, and the manifest's entry on the round trip.
        """
        heldout = sorted(chosen)
        rows = ((row, record["digest"].tobytes()) for row, record in enumerate(self._all_records()) if record["long"])
        late = []
        documents = changed = decoded = 0
        parts["train"].end_file()
        for name in self._long.names:
            for batch in shards.read(self._folder / name, self.dtype, self.vocab_size, self.eos_id):
                columns = batch.column("id").to_pylist(), batch.column("bytes").to_pylist()
                offsets, values = batch.column("tokens").offsets.to_numpy(), batch.column("tokens").values.to_numpy()
                for document_id, size, start, end in zip(*columns, offsets[:-1], offsets[1:], strict=True):
                    row, digest = next(rows)
                    split = chosen.get(row, "train")
                    if split == "train":
                        late.append(row - bisect(heldout, row))
                    elif decoded < _ROUND_TRIP_TOKENS:
                        text = tokenizers.decode(self.tokenizer, values[start : end - 1].tolist())
                        documents, decoded = documents + 1, decoded + int(end - start)
                        changed += hashlib.sha256(text.encode()).digest() != digest
                    parts[split].add(document_id, size, values[start:end].tobytes())
        return late, {"documents": documents, "changed": changed}

    def _corpus_hash(self, chosen: Mapping[int, str]) -> str:
        identity = hashlib.sha256((self._folder / TOKENIZER).read_bytes())
        for row, record in enumerate(self._all_records()):
            digest, split = record["digest"].tobytes().hex(), chosen.get(row, "train")
            identity.update(f"{digest} {record['tokens']} {split}\n".encode())
        return identity.hexdigest()[:16]

    def _all_records(self) -> Iterator[np.void]:
        for records in self._records.parts(_RECORDS_AT_ONCE):
            yield from records

    def close(self) -> None:
        """Closes the files that are not part of the store."""
        self._seen.close()
        self._records.close()
        self._passages.close()

    def remove_scaffold(self) -> None:
        """Removes those files from a complete store."""
        self.close()
        for name in (PROGRESS, RECORDS, PASSAGES, *self._long.names):
            (self._folder / name).unlink()
