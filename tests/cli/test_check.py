"""extrapolate check"""

import re
from pathlib import Path

FAILS = """
from extrapolate.encodings.base import Encoding
class Mine(Encoding):
    display = "Mine"
    def bias(self, pos_T, pos_S):
        return self.helped()
    def helped(self):
        return [][3]
"""
LEAK = """
from extrapolate.encodings.base import Encoding
class Mine(Encoding):
    display = "Mine"
    def embed(self, x, pos_T): return x - x.mean(dim=1, keepdim=True)
"""


def test_a_registered_encoding_is_ok(cli) -> None:
    shown = cli("check", "rope:theta=500", "--seq-len", 16).succeeded().out
    assert "rope:theta=500, L = 16 tokens, 4 heads, G = 2" in shown
    assert shown.count(" ok ") == 10


def test_a_users_fault_is_in_the_table_and_in_the_message(cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LEAK)
    ended = cli("check", "mine.py:Mine", "--seq-len", 16)
    message = ended.error()
    assert re.match("mine.py: embed lets token .* see token .*, which comes after it", message)
    assert message.endswith("(and 3 more, see the table)")
    assert ended.out.count(" ok ") == 6


def test_debug_shows_the_frames_of_the_users_own_code(cli, process, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILS)
    said = "bias failed: IndexError: list index out of range, in line 8"
    shown = process("check", "mine.py:Mine", "--debug").err
    assert 'mine.py", line 6, in bias' in shown
    assert 'mine.py", line 8, in helped' in shown
    assert shown.splitlines()[-1].endswith(said)
    assert cli("check", "mine.py:Mine").error() == f"mine.py: {said}"


def test_what_cannot_be_checked_is_said(cli) -> None:
    assert "did you mean 'rope'?" in cli("check", "rop").error()
    assert "no such file" in cli("check", "mine.py:Mine").error()
    assert "has no argument 'thetta'" in cli("check", "rope:thetta=5").error()
    for seq_len in (3, 10**8):  # at the second, windows of 16 L would take all memory
        assert "--seq-len must be between 4 and 4096" in cli("check", "rope", "--seq-len", seq_len).error()
