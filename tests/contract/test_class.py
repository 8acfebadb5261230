"""A class of a user's own: its arguments, names of methods, and what an instance says of itself."""

import pytest


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
             "self.theta is a tensor [], and argument theta is a finite number: keep the argument as self.theta"),
            ("def __init__(self, dims, *, size: int = 3):\n    super().__init__(dims)\n    self.size = size / 2",
             "self.size is 1.5, and argument size is a whole number"),
            ("def __init__(self, dims, *, size: int = None):\n    super().__init__(dims)\n    self.size = size",
             "self.size is None, and argument size is a whole number"),
            ("def __init__(self, dims, *, size: int = 3):\n    super().__init__(dims)\n    self.size = size * 2",
             "self.size is 6, and an encoding made with size=6 has 12"),
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
