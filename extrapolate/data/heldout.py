"""Which documents are held out for validation and testing, decided while they come."""

from bisect import insort
from typing import NamedTuple

from extrapolate.data.store import HELDOUT
from extrapolate.errors import UserError


class Long(NamedTuple):
    """A document that is long enough to be held out. `row` is its place among all, `tokens` leaves out its end."""

    digest: bytes
    row: int
    tokens: int


class HeldOut:
    """Of the long documents, in the order of their hashes, the first are for testing, those after them for validation.

    How many follows from HELDOUT, and from how many long documents there are. The later ones of that order can already
    be let go of when they come, as nothing that comes after them brings them nearer to its beginning.
    """

    def __init__(self, min_tokens: int) -> None:
        self._min_tokens = min_tokens
        self._first: list[Long] = []  # in the order of their hashes
        self._beyond: bytes | None = None  # the least hash of those that were let go of
        self._long = self._all = self._longest = 0

    def may_hold(self, digest: bytes, tokens: int) -> bool:
        """Takes the next document. Whether it may be held out at the end; else it is for training."""
        self._all, self._longest = self._all + 1, max(self._longest, tokens)
        if tokens < self._min_tokens:
            return False
        self._long += 1
        if self._beyond is not None and digest > self._beyond:
            return False
        insort(self._first, Long(digest, self._all - 1, tokens))
        reach = sum(self._counts({name: most for name, (_, most, _) in HELDOUT.items()}).values())
        if reach < len(self._first):
            self._beyond = self._first[reach].digest
            del self._first[reach:]
        return self._beyond is None or digest < self._beyond

    def chosen(self) -> dict[int, str]:
        """The split of every document that is held out, by its row.

        Raises UserError where there are too few for testing, validation and training.
        """
        if self._long < 2 or self._all < 3:
            raise UserError(
                f"{self._long} of {self._all} documents have at least {self._min_tokens} tokens (the longest has "
                f"{self._longest}), and testing and validation need one each, training a third; "
                "lower `min_heldout_tokens` or add documents"
            )
        wanted = {name: min(most, round(share * self._long)) for name, (share, most, _) in HELDOUT.items()}
        first = iter(self._first)
        return {next(first).row: name for name, count in self._counts(wanted).items() for _ in range(count)}

    def _counts(self, wanted: dict[str, int]) -> dict[str, int]:
        """How many each split takes: as many as are wanted and its number of tokens allows, and at least one."""
        counts = {}
        taken = 0
        for name, (_, _, most_tokens) in HELDOUT.items():
            count = tokens = 0
            for document in self._first[taken : taken + max(1, wanted[name])]:
                tokens += document.tokens
                if count and tokens > most_tokens:
                    break
                count += 1
            counts[name], taken = count, taken + count
        return counts
