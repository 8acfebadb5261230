"""Where a model is asked for what it sees: in how many windows, and from which places on tokens are exchanged.

Shapes: B windows, T tokens, P places.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

# The windows that a model is tried with: one for each place in a window, up to a number of tokens in all.
FEWEST, TOKENS = 3, 4096
# How many tokens are read to try more places than that: at least, at most, and for how many floating-point operations.
LEAST_TOKENS, MOST_TOKENS, OPERATIONS = 8192, 2**17, 2e11
RECURRING = 4  # different tokens in every second window
AGAIN = 4  # how many windows each place of a short window is tried in, at most


def window_count(length: int) -> int:
    """The number of windows of `length` tokens that a model is tried with."""
    return max(FEWEST, min(length, TOKENS // length))


def places_within(products: float, length: int) -> int:
    """At how many places of windows a model is tried that multiplies `products` numbers a token."""
    tokens = min(MOST_TOKENS, max(LEAST_TOKENS, int(OPERATIONS / (2 * max(1, products)))))
    return min(length - 1, tokens // length)


def few_places(length: int) -> int:
    """At how many places of windows of `length` tokens any model is tried; in a short window, at each several times."""
    return min(AGAIN * (length - 1), LEAST_TOKENS // length)


def random_windows(vocab_size: int, length: int, least: int = 0) -> Tensor:
    """Random tokens, the same for the same arguments, [B, length], B at least `least`.

    Every second window has few different tokens, so that they recur in it as they do in text.
    """
    generator = torch.Generator().manual_seed(1)
    tokens_BT = torch.randint(0, vocab_size, (max(least, window_count(length)), length), generator=generator)
    tokens_BT[1::2] %= RECURRING
    return tokens_BT


def later(tokens_BT: Tensor, places: int, seq_len: int | None) -> Iterator[Tensor]:
    """The tokens to exchange, [B, T]: those from a place on, in turn from `places`, or as many as there are windows.

    The places are spread over the window, and others for other tokens; in one row it is none. Some are there in any
    case: the last, the largest power of two, where blocks of any smaller one end, and, as far as half of the places
    suffice, those at and beside the multiples of `seq_len`.
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
