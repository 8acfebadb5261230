"""The manifest of a token store: what it says, and that what is read is one."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.specs.settings import Section
from extrapolate.version import __version__

# From the second on it has a hash of itself, and says the hash of every other file. The first had neither. The third
# says the places of training documents that were written late, the fourth how many near-duplicates were found. The
# fifth says whether the tokenizer gives the text back, what the source's files held, and whose the splits are. The
# sixth says what they held by names and content alone.
FORMAT = 6
TOKENIZER = "tokenizer.json"

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Shard = Annotated[str, Field(pattern=r"^[a-z]+-[0-9]{5,9}\.arrow$")]


class Part(Section):
    """A split: its Arrow files, and what they hold. `longest_document` leaves out the end-of-text token."""

    shards: list[Shard]
    documents: Count
    tokens: Count
    bytes: Count
    longest_document: Count


class Training(Part):
    """The training split. Its last documents were written late: `late` is the place of each among all."""

    late: list[Count]

    @model_validator(mode="after")
    def _places_are_there(self) -> "Training":
        if sorted({*self.late, self.documents})[: len(self.late)] != self.late or len(self.late) > self.documents:
            raise ValueError("late has places that cannot be")
        return self


class Parts(Section):
    """The splits."""

    train: Part
    validation: Part
    test: Part


class LateParts(Parts):
    """The splits, of which training has documents that were written late."""

    train: Training


class Content(Section):
    """What a file holds."""

    bytes: Count
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class First(Section):
    """A manifest of the first format."""

    format: int
    source: str
    settings: dict[str, str | int | bool | None]
    vocab_size: int = Field(strict=True, ge=1, le=2**32)
    eos_id: Count
    dtype: str
    splits: Parts
    corpus_hash: str = Field(pattern=r"^[0-9a-f]{16}$")

    @model_validator(mode="after")
    def _token_ids_fit(self) -> "First":
        if self.dtype != ("uint16" if self.vocab_size <= 2**16 else "uint32") or self.eos_id >= self.vocab_size:
            raise ValueError("vocab_size, eos_id and dtype do not fit each other")
        return self


class Second(First):
    """A manifest of the second format."""

    files: dict[str, Content]

    @model_validator(mode="after")
    def _every_file_is_there_once(self) -> "Second":
        shards = [shard for name in SPLITS for shard in getattr(self.splits, name).shards]
        if sorted(self.files) != sorted([TOKENIZER, *shards]):
            raise ValueError("files are not those of the splits and the tokenizer")
        return self


class Third(Second):
    """A manifest of the third format."""

    splits: LateParts


class Near(Section):
    """Pairs of near-duplicates of which one at least could be held out.

    `apart`: how many would stand in two splits, were they not kept together.
    """

    pairs: Count
    apart: Count


class Fourth(Third):
    """A manifest of the fourth format. Without near-duplicates: they were not looked for."""

    near_duplicates: Near | None


class RoundTrip(Section):
    """Held-out documents of which the tokens were decoded. `changed`: how many gave another text."""

    documents: Count
    changed: Count


class SourceFiles(Section):
    """What the source's files held, by paths and times, and without their names."""

    fingerprint: str
    content: str


class Checked(Fourth):
    """`split_column`: whether the splits are those that the source's own column names; None if there is no such."""

    round_trip: RoundTrip
    split_column: Literal["used", "not used"] | None


class Fifth(Checked):
    """A manifest of the fifth format."""

    source_files: SourceFiles | None


class Sixth(Checked):
    """A manifest of the sixth format. Without source_content, the source does not say whether it is the same.

    source_content: see `Lasting.content`.
    """

    source_content: str | None


SPLITS = tuple(Parts.model_fields)
_FORMATS: dict[int, type[First]] = {1: First, 2: Second, 3: Third, 4: Fourth, 5: Fifth, 6: Sixth}


def read(path: Path) -> dict[str, Any]:
    """A manifest, whole: every entry that its format has is there, and is possible. Raises UserError if it is not.

    The files that it names lie in its folder: no name has a path in it.
    """
    try:
        record = files.read_sealed(path)
    except UserError as error:
        raise UserError(f"{error}, or delete the store and tokenise again") from error
    number = record.get("format")
    if type(number) is int and number > FORMAT:
        raise UserError(
            f"{path} is in format {number}, which this version of extrapolate, {__version__}, does not know: "
            "upgrade extrapolate, or tokenise again"
        )
    if type(number) is not int or number not in _FORMATS:
        raise UserError(f"{path} is damaged: it names no format; delete the store and tokenise again")
    try:
        _FORMATS[number].model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        raise UserError(
            f"{path} is damaged: {f'{place}: ' if place else ''}{first['msg']}; delete the store and tokenise again"
        ) from error
    return record
