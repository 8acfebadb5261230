"""A class of a user's own: its arguments, names of methods, and what an instance says of itself."""

from pathlib import Path

import pytest

from extrapolate.encodings.base import Dims
from extrapolate.errors import UserError
from extrapolate.model.model import layer_encodings


class TestClass:
    """Arguments, names of methods, and what an instance says of itself."""

    @pytest.mark.parametrize(
        ("name", "hook"),
        [("rotat", "rotate"), ("biass", "bias"), ("embedd", "embed"), ("score", "scores"), ("position", "positions")],
    )
    def test_a_method_that_is_nearly_a_hook_is_refused(self, refused, name: str, hook: str) -> None:
        refused(f"def {name}(self, x): return x", f"mine.py: {name} is no hook", f"did you mean '{hook}'?")

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("def __init__(self, dims, *, theta: float = 1.0): super().__init__(dims)",
             "keep argument theta as self.theta"),
            ("def __init__(self, dims, *, theta: float = 1.0):\n"
             "    super().__init__(dims)\n    self.theta = nn.Parameter(torch.tensor(theta))",
             "self.theta is a tensor [], which argument theta was not: keep the argument as self.theta"),
            ("def __init__(self, dims, *, size: int = 3):\n    super().__init__(dims)\n    self.size = size / 2",
             "self.size is 1.5, which argument size was not"),
            ("def __init__(self, dims, *, size: int = 3):\n    super().__init__(dims)\n    self.size = size * 2",
             "self.size is 6, which argument size was not"),
            ("def __init__(self, dims): self.x = 1", "__init__ must begin with super().__init__(dims)"),
            ("def __init__(self, dims): self.x = nn.Parameter(torch.ones(1))", "__init__ failed: AttributeError"),
            ("def __init__(self, dims):\n    super().__init__(dims)\n    self.bias = nn.Parameter(torch.ones(1))",
             "__init__ failed: KeyError"),
            ("def __init__(self, dims): raise ValueError('too wide')", "mine.py: too wide"),
            ("def __init__(self, dims): sys.exit(0)", "__init__ failed: SystemExit: 0"),
            ("window = 0", "window is 0; expected a positive whole number of tokens, or None"),
            ("max_length = 2.5", "max_length is 2.5; expected a positive whole number of tokens, or None"),
        ],
    )  # fmt: skip
    def test_instances(self, refused, body: str, message: str) -> None:
        refused(body, message)

    def test_it_is_checked_with_the_arguments_that_are_given(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.py"
        file.write_text(
            "from extrapolate.encodings.base import Encoding\n\n\nclass Mine(Encoding):\n    display = 'Mine'\n\n"
            "    def __init__(self, dims, *, power: int = 1):\n        super().__init__(dims)\n"
            "        self.power = power\n\n"
            "    def bias(self, pos_T, pos_S):\n"
            "        return -(pos_T[:, None] - pos_S[None, :])[(None,) * self.power]\n"
        )
        dims = Dims(32, 2, 16, 64)
        assert len(layer_encodings(f"{file}:Mine", {}, dims)) == 1
        with pytest.raises(UserError, match=r"bias returned \[1, 1, "):
            layer_encodings(f"{file}:Mine", {"power": 2}, dims)
