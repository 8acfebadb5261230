"""Chooses the windows, and the places in them from which on tokens are exchanged, to test what a model sees.

Shapes: B windows, T tokens, P places.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

FEWEST, TOKENS = 3, 4096  # a model is tested with a window for each place, at least this many, up to this many tokens
TEXT_TOKENS = 8192  # of text that a user's code is tested with: what it sees may depend on what is in it
# Tokens that are read to test more places: at least, at most, and for how many floating-point operations.
LEAST_TOKENS, MOST_TOKENS, OPERATIONS = 8192, 2**17, 2e11
RECURRING = 4  # distinct tokens in every second window
AGAIN = 4  # windows in which each place of a short window is tested, at most


def window_count(length: int) -> int:
    """The number of windows of `length` tokens that a model is tested with."""
    return max(FEWEST, min(length, TOKENS // length))


def places_within(products: float, length: int) -> int:
    """The number of places at which a model with `products` multiplications per token is tested."""
    tokens = min(MOST_TOKENS, max(LEAST_TOKENS, int(OPERATIONS / (2 * max(1, products)))))
    return min(length - 1, tokens // length)


def few_places(length: int) -> int:
    """The number of places of windows of `length` tokens at which any model is tested; repeated in short windows."""
    return min(AGAIN * (length - 1), LEAST_TOKENS // length)


def random_windows(vocab_size: int, length: int, least: int = 0) -> Tensor:
    """Random tokens, the same for the same arguments, [B, length], with B at least `least`.

    Every second window has few distinct tokens, which recur as they do in text.
    """
    generator = torch.Generator().manual_seed(1)
    tokens_BT = torch.randint(0, vocab_size, (max(least, window_count(length)), length), generator=generator)
    tokens_BT[1::2] %= RECURRING
    return tokens_BT


def later(tokens_BT: Tensor, places: int, seq_len: int | None) -> Iterator[Tensor]:
    """Yields masks of the tokens to exchange, [B, T]: those from a place on, for `places` places or one per window.

    The places are spread over the window and depend on the tokens; one row of each mask is empty. They always include
    the last place, the largest power of two (where blocks of any smaller one end) and, using up to half of the places,
    those at and next to multiples of `seq_len`.
    """
    rows, length = tokens_BT.shape
    generator = torch.Generator().manual_seed(int(tokens_BT.sum()))
    count = max(1, rows - 1)
    total = max(count, places)
    spread = (torch.arange(total) + torch.rand(total, generator=generator)) / total
    place_P = 1 + (spread * (length - 1)).long()
    if total >= length - 1:
        place_P[: length - 1] = torch.arange(1, length)
    elif total > 1:
        wanted = [length - 1, 2 ** ((length - 1).bit_length() - 1)]
        ends = range(seq_len, length - 1, seq_len) if seq_len else ()
        wanted += [end + offset for offset in (0, 1, -1) for end in ends]
        free_P = torch.ones(total, dtype=torch.bool)
        for place in list(dict.fromkeys(wanted))[: max(2, total // 2)]:
            nearest = (place_P - place).abs().masked_fill(~free_P, length).argmin()
            place_P[nearest], free_P[nearest] = place, False
    for place_B in place_P[torch.randperm(total, generator=generator)].split(count):
        place_B = torch.cat([place_B, place_B[:1].expand(count - len(place_B))])
        if rows > 1:
            middle = rows // 2
            place_B = torch.cat([place_B[:middle], torch.tensor([length]), place_B[middle:]])
        yield (torch.arange(length)[None] >= place_B[:, None]).to(tokens_BT.device)
