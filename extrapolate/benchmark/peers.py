"""What the program is compared with, where it is installed."""

import importlib.util

# The peer, the packages that it needs, and the extra that brings them.
_PEERS = (
    ("transformers", ("transformers",), "peers"),
    ("lm_eval", ("lm_eval", "transformers", "accelerate"), "lm-eval"),
)


def installed() -> dict[str, bool]:
    """Whether each peer is there: transformers, lm_eval."""
    return {peer: all(importlib.util.find_spec(one) is not None for one in needs) for peer, needs, _ in _PEERS}


def how_to_install(peer: str) -> str:
    """What to tell a user who has it not."""
    extra = next(extra for name, _, extra in _PEERS if name == peer)
    return f"no {peer} to compare with: pip install 'extrapolate[{extra}]'"
