"""Draws the pictures in docs/encodings/, and puts docs/notes/ into docs/encodings.md. docs/generate.py runs it."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from PIL import Image

from extrapolate.api.plot_encodings import plot_encodings
from extrapolate.catalogue.entries import encoding_entries
from extrapolate.inspection.views import views
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

NOTES = Path(__file__).parent / "notes"
COLOURS = 256  # in the palette of a picture, which makes it a third as large
SHIFT, STARTS = 5, (0, 9)  # tokens
PAIRS = (0.09, 0.15, 0.21)  # of all pairs, where the fastest is 0


def with_notes(page: str) -> str:
    """The sections of encodings, with what docs/notes/ has about an encoding at the end of its section."""
    for notes in sorted(NOTES.glob("*.md")):
        above, heading, rest = page.partition(f"\n## {notes.stem}\n")
        assert heading, f"docs/notes/{notes.name} is about no encoding"
        section, *others = re.split(r"^(?=## )", rest, maxsplit=1, flags=re.MULTILINE)
        more = _with_output(notes.read_text(encoding="utf-8"))
        page = "".join([above, heading, section.rstrip("\n"), "\n\n", more, *(f"\n{other}" for other in others)])
    return page


def _with_output(text: str) -> str:
    """The text, with what each block of Python prints below it."""
    variables: dict[str, object] = {}

    def run(block: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block[1], variables)
        return f"{block[0]}\n\nprints\n\n```\n{printed.getvalue()}```"

    return re.sub(r"^```python\n(.*?)^```", run, text, flags=re.MULTILINE | re.DOTALL)


def draw(folder: Path) -> None:
    """Draws every picture into folder/encodings, the same bytes each time."""
    for entry in encoding_entries():
        write(plot_encodings(entry.name), folder / "encodings" / f"{entry.name}.png")
    for name, halves, names in (("sinusoidal", False, "sine cosine"), ("rope", True, "first second")):
        write(circles(name, halves, names.split()), folder / "encodings" / f"{name}-shift.png")


def write(figure: Figure, path: Path) -> None:
    """A figure as a small PNG."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80, metadata={"Software": None})
    image = Image.open(drawn).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


def circles(name: str, halves: bool, names: list[str]) -> Figure:
    """Pairs of channels at positions 0 to 19, and where a shift moves two of them: by the same angle.

    A pair is channels 2m and 2m + 1, or with `halves` the mth of each half.
    """
    model = Model(ModelConfig(vocab_size=1), name, {}, 128)
    (view,) = views(model, 20)
    values_TC = view.values_TC.numpy()
    count = values_TC.shape[1] // 2
    figure = Figure(figsize=(8.0, 3.0), facecolor="white", layout="constrained")
    for panel, m in zip(figure.subplots(1, 3), (round(count * share) for share in PAIRS), strict=True):
        x, y = values_TC[:, [m, m + count] if halves else [2 * m, 2 * m + 1]].T
        radius = float(np.hypot(x[0], y[0]))
        panel.add_patch(Circle((0, 0), radius, fill=False, color="#bbbbbb"))
        panel.plot(x, y, "o", ms=2.5, color="#888888")
        for start, colour in zip(STARTS, ("#0072B2", "#D55E00"), strict=True):
            ends = [start, start + SHIFT]
            (tail, head) = zip(x[ends], y[ends], strict=True)
            panel.add_patch(FancyArrowPatch(tail, head, arrowstyle="->", mutation_scale=12, color=colour))
            for at in ends:
                panel.plot([0, x[at]], [0, y[at]], color=colour, lw=0.8, alpha=0.6)
                panel.text(1.15 * x[at], 1.15 * y[at], str(at), ha="center", va="center", color=colour, fontsize=9)
        panel.set(xlabel=f"{names[0]} channel", ylabel=f"{names[1]} channel", aspect="equal")
        panel.set(xlim=(-1.35 * radius, 1.35 * radius), ylim=(-1.35 * radius, 1.35 * radius))
        panel.set_title(f"pair m = {m}", fontsize=10)
    return figure
