"""Datasets of the Hugging Face Hub."""

from collections.abc import Iterator

from extrapolate.data.documents import Document, check_size
from extrapolate.data.sources.base import NamedSource, sources, split_of, text_of
from extrapolate.errors import UserError


@sources.register("hf")
class HuggingFace(NamedSource):
    """A dataset of the Hugging Face Hub, or a local dataset folder, streamed: `hf:NAME[:CONFIG[:SPLIT]]`.

    Every row is a document; one column has the text. The default SPLIT is `train`.
    """

    argument = "NAME"

    def __init__(self, spec: str, text_field: str) -> None:
        self.text_field = text_field
        self.name, _, rest = spec.partition(":")
        config, _, split = rest.partition(":")
        self.config, self.split = config or None, split or "train"
        if not self.name:
            raise UserError("hf: names no dataset: expected hf:NAME[:CONFIG[:SPLIT]]")

    @classmethod
    def open(cls, argument: str, text_field: str) -> "HuggingFace":
        return cls(argument, text_field)

    def __iter__(self) -> Iterator[Document]:
        import datasets

        try:
            rows = datasets.load_dataset(self.name, self.config, split=self.split, streaming=True)
            for number, row in enumerate(rows):
                text = text_of(row, self.text_field, f"row {number}")
                yield check_size(Document(str(number), text, split_of(row, self.text_field)))
        except UserError:
            raise
        except Exception as error:  # of many libraries, depending on the format
            raise UserError(f"hf:{self.name} cannot be read: {error}") from error
