"""`--stride`, `--bos` and `--protocol yarn` from the command to the tables of a report."""

import json
from pathlib import Path

import pytest

import extrapolate as xt

FEW = ["--factors", "1,2", "--max-targets", "512"]


@pytest.fixture(scope="module")
def names() -> dict[str, str]:
    """What the tables call the protocols, and what their files' names end in."""
    return {
        "windows:bos=true": ".windows-bos-true",
        "sliding:bos=true,stride=4": ".sliding-bos-true-stride-4",
        "yarn:bos=true,stride=4": ".yarn-bos-true-stride-4",
    }


def test_reports_and_comparisons_have_them_as_protocols_of_their_own(cli, ckpt: Path, names, without_pictures) -> None:
    asked = ["--protocol", "windows,sliding,yarn", "--stride", "4", "--bos"]
    ended = cli("eval-lengths", ckpt / "rope", ckpt / "expe", *FEW, *asked).succeeded()
    for name in names:
        assert f"{name}, loss in nats per token" in ended.out
    assert ended.out.count("perplexity where every window counts alike") == 1
    cli("eval-lengths", ckpt / "rope", ckpt / "expe", *FEW, "--protocol", "windows").succeeded()
    found = xt.rows(ckpt / "rope")
    assert set(found["protocol"]) == {*names, "windows"}
    assert found.groupby("protocol")["stride"].first().dropna().to_dict() == {
        name: 4.0 for name in names if "stride" in name
    }

    cli("report", ckpt / "rope", ckpt / "expe", "--out", "report").succeeded()
    page = Path("report/report.md").read_text()
    yarn = page.partition("## Protocol yarn:bos=true,stride=4\n")[2].partition("\n## ")[0]
    assert "that give every window the same weight, however many tokens it scores" in yarn
    figures = found[found["protocol"] == "yarn:bos=true,stride=4"].set_index("factor")
    for column in ("window_perplexity", "perplexity"):
        values = " | ".join(f"{figures.loc[factor, column]:.3f}" for factor in (1, 2))
        assert f"| RoPE | {'windows' if column != 'perplexity' else 'tokens'} | {values} |" in yarn
    for end in ("", *names.values()):
        assert Path(f"report/loss_by_ev{end}.parquet").exists(), end
    # Losses by position, and failure lengths, where the protocol has them: whatever windows begin with.
    assert {path.name for path in Path("report").glob("failure_lengths*.parquet")} == {
        "failure_lengths.parquet", "failure_lengths.windows-bos-true.parquet",
    }  # fmt: skip
    said = " ".join(page.split())
    assert "Here it was used with bos=true,stride=4; the picture shows yarn without arguments." in said
    assert page.index("## Protocol windows\n") < page.index("## Protocol sliding"), "the paper's comes first"

    lines = cli("compare", ckpt / "rope", ckpt / "expe", "--json").succeeded().out.splitlines()
    assert {json.loads(line)["protocol"] for line in lines} == {*names, "windows"}


def test_several_arguments_take_parentheses(cli, ckpt: Path) -> None:
    asked = ["--protocol", "(sliding:stride=4,bos=true),windows", "--json"]
    ended = cli("eval-lengths", ckpt / "rope", *FEW, *asked).succeeded()
    found = {json.loads(line)["protocol"] for line in ended.out.splitlines()}
    assert found == {"sliding:bos=true,stride=4", "windows"}
