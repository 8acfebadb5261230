"""How hard the tests of this folder look, and random damage to bytes and to JSON.

EXTRAPOLATE_FAULTS is `short`, as in every run of the suite, or `long`. It decides how many examples a test tries that
has the settings of the profile `flips`, for bits that are flipped, or `fuzzing`, for anything else. A test takes one by
`@settings.get_profile("flips")`, and draws with the fixture `damage`.
"""

import os
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

EXAMPLES = {"flips": {"short": 200, "long": 10_000}, "fuzzing": {"short": 50, "long": 10_000}}
for name, examples in EXAMPLES.items():
    chosen = examples[os.environ.get("EXTRAPOLATE_FAULTS", "short")]
    settings.register_profile(name, max_examples=chosen, deadline=None)

# Numbers at the ends of their types, of which lengths, places and counts are made.
ENDS = [0, 1, -1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**63)]
INTEGERS = st.sampled_from(ENDS) | st.integers()
TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.just(10**400) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)


class Damage:
    """Strategies: the content, and something of it changed."""

    @staticmethod
    @st.composite
    def flipped(draw: st.DrawFn, content: bytes) -> bytes:
        """One bit."""
        damaged = bytearray(content)
        damaged[draw(st.integers(0, len(content) - 1))] ^= 1 << draw(st.integers(0, 7))
        return bytes(damaged)

    @staticmethod
    @st.composite
    def mutated(draw: st.DrawFn, content: bytes) -> bytes:
        """Up to eight places: bytes overwritten, put in, taken out or said twice; or the end is missing."""
        damaged = bytearray(content)
        for _ in range(draw(st.integers(1, 8))):
            place, length = draw(st.integers(0, len(damaged))), draw(st.integers(1, 16))
            how = draw(st.sampled_from(["bytes", "bytes", "number", "number", "insert", "remove", "repeat", "cut"]))
            if how == "bytes":
                damaged[place : place + length] = draw(st.binary(min_size=length, max_size=length))
            elif how == "number":
                width = draw(st.sampled_from([1, 2, 4, 8]))
                damaged[place : place + width] = (draw(INTEGERS) % 2**64).to_bytes(8, "little")[:width]
            elif how == "insert":
                damaged[place:place] = draw(st.binary(min_size=1, max_size=16))
            elif how == "remove":
                del damaged[place : place + length]
            elif how == "repeat":
                damaged[place:place] = damaged[place : place + length]
            elif draw(st.integers(0, 9)) == 0:  # of what is cut little is left to read
                del damaged[place:]
        return bytes(damaged)

    @staticmethod
    @st.composite
    def mutated_json(draw: st.DrawFn, value: Any) -> Any:
        """Up to three entries: with another value, another name, or missing."""
        value = deepcopy(value)
        for _ in range(draw(st.integers(1, 3))):
            inside: Any = value
            while keys := list(inside) if isinstance(inside, dict) else list(range(len(inside))):
                key = draw(st.sampled_from(keys))
                if isinstance(inside[key], dict | list) and draw(st.booleans()):
                    inside = inside[key]
                    continue
                how = draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
                if how == "replace":
                    inside[key] = draw(JSON)
                elif how == "rename" and isinstance(inside, dict):
                    inside[draw(TEXT)] = inside.pop(key)
                else:
                    del inside[key]
                break
        return value


@pytest.fixture(scope="session")
def damage() -> type[Damage]:
    return Damage
