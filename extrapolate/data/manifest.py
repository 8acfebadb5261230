"""The manifest of a token store: its entries, and reading and checking them."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.specs.settings import Section

TOKENIZER = "tokenizer.json"

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Shard = Annotated[str, Field(pattern=r"^[a-z]+-[0-9]{5,9}\.arrow$")]


class Part(Section):
    """A split: its Arrow files and their counts. `longest_document` does not include the end-of-text token."""

    shards: list[Shard]
    documents: Count
    tokens: Count
    bytes: Count
    longest_document: Count


class Training(Part):
    """The training split. `late` has the places of the documents that were written last."""

    late: list[Count]

    @model_validator(mode="after")
    def _places_are_there(self) -> "Training":
        if sorted({*self.late, self.documents})[: len(self.late)] != self.late or len(self.late) > self.documents:
            raise ValueError("late has places that cannot be")
        return self


class Parts(Section):
    """The splits."""

    train: Training
    validation: Part
    test: Part


SPLITS = tuple(Parts.model_fields)


class Content(Section):
    """The size and hash of a file."""

    bytes: Count
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Near(Section):
    """Pairs of near-duplicates, at least one of which could be held out.

    `apart`: how many pairs would otherwise be in different splits.
    """

    pairs: Count
    apart: Count


class RoundTrip(Section):
    """Held-out documents whose tokens were decoded. `changed`: how many gave a different text."""

    documents: Count
    changed: Count


class Manifest(Section):
    """Every entry of a manifest.

    near_duplicates: None if not searched for. split_column: whether the splits are those of the source's own column;
    None if it has no such column. source_content: see `Lasting.content`; None if unknown. without_text: how many
    documents of the source were null or empty.
    """

    format: int
    source: str
    settings: dict[str, str | int | bool | None]
    vocab_size: int = Field(strict=True, ge=1, le=2**32)
    eos_id: Count
    dtype: str
    splits: Parts
    corpus_hash: str = Field(pattern=r"^[0-9a-f]{16}$")
    files: dict[str, Content]
    near_duplicates: Near | None
    round_trip: RoundTrip
    split_column: Literal["used", "not used"] | None
    source_content: str | None
    without_text: Count = 0

    @model_validator(mode="after")
    def _token_ids_fit(self) -> "Manifest":
        if self.dtype != ("uint16" if self.vocab_size <= 2**16 else "uint32") or self.eos_id >= self.vocab_size:
            raise ValueError("vocab_size, eos_id and dtype do not fit each other")
        return self

    @model_validator(mode="after")
    def _every_file_is_there_once(self) -> "Manifest":
        shards = [shard for name in SPLITS for shard in getattr(self.splits, name).shards]
        if sorted(self.files) != sorted([TOKENIZER, *shards]):
            raise ValueError("files are not those of the splits and the tokenizer")
        return self


def read(path: Path) -> dict[str, Any]:
    """Reads a manifest. Raises UserError if it is damaged, or in another format.

    The files it names are in its folder, because names have no paths.
    """
    try:
        record = files.read_sealed(path)
        files.check_format(path, record.get("format"))
    except UserError as error:
        raise UserError(f"{error}, or delete the store and tokenise again") from error
    try:
        Manifest.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        raise UserError(
            f"{path} is damaged: {f'{place}: ' if place else ''}{first['msg']}; delete the store and tokenise again"
        ) from error
    return record
