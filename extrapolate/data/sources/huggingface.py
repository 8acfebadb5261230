"""Datasets of the Hugging Face Hub."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

from extrapolate.data.documents import Document, check_size
from extrapolate.data.sources.base import NamedSource, sources, split_of, text_of
from extrapolate.errors import UserError

RETRIES = 6  # in a row, without a new row: after 1, 2, 4, ... s, about a minute in all
SAVE_EVERY = 1000  # rows: from the last saved place, a stream that broke is read again


@sources.register("hf")
class HuggingFace(NamedSource):
    """A dataset of the Hugging Face Hub, or a local dataset folder, streamed: `hf:NAME[:CONFIG[:SPLIT]]`.

    Every row is a document; one column has the text. The default SPLIT is `train`. A stream that breaks goes on from
    where it broke.
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
        for number, row in enumerate(self._rows()):
            text = text_of(row, self.text_field, f"row {number}")
            yield check_size(Document(str(number), text, split_of(row, self.text_field)))

    def _rows(self) -> Iterator[dict[str, Any]]:
        import datasets

        read = saved = failures = 0
        place: dict[str, Any] | None = None
        while True:
            try:
                rows = datasets.load_dataset(self.name, self.config, split=self.split, streaming=True)
                if place is not None:
                    rows.load_state_dict(place)
                for row in itertools.islice(rows, read - saved, None):
                    yield row
                    read, failures = read + 1, 0
                    if read % SAVE_EVERY == 0:
                        place, saved = rows.state_dict(), read
                return
            except Exception as error:  # of many libraries, depending on the format and the connection
                if not read or failures == RETRIES:
                    after = f" after row {read - 1}" if read else ""
                    raise UserError(f"hf:{self.name} cannot be read{after}: {error}") from error
                time.sleep(2.0**failures)
                failures += 1
