"""`--stride`, `--bos` and `--protocol yarn` from the command to the tables of a report."""

import json
from pathlib import Path

import extrapolate as xt

FEW = ["--factors", "1,2", "--max-targets", "512"]


NAMES = {
    "windows:bos=true": ".windows-bos-true",
    "sliding:bos=true,stride=4": ".sliding-bos-true-stride-4",
    "yarn:bos=true,stride=4": ".yarn-bos-true-stride-4",
}


def test_reports_and_comparisons_have_them_as_protocols_of_their_own(cli, ckpt: Path, without_pictures) -> None:
    asked = ["--protocol", "windows,sliding,yarn", "--stride", "4", "--bos"]
    ended = cli("eval-lengths", ckpt / "rope", *FEW, *asked).succeeded()
    for name in NAMES:
        assert f"{name}, loss in nats per token" in ended.out
    assert ended.out.count("perplexity where every window counts alike") == 1
    cli("eval-lengths", ckpt / "rope", *FEW, "--protocol", "windows").succeeded()
    found = xt.rows(ckpt / "rope")
    assert set(found["protocol"]) == {*NAMES, "windows"}
    assert found.groupby("protocol")["stride"].first().dropna().to_dict() == {
        name: 4.0 for name in NAMES if "stride" in name
    }

    cli("report", ckpt / "rope", "--out", "report").succeeded()
    page = Path("report/report.md").read_text()
    yarn = page.partition("## Protocol yarn:bos=true,stride=4\n")[2].partition("\n## ")[0]
    assert "that give every window the same weight, however many tokens it scores" in yarn
    figures = found[found["protocol"] == "yarn:bos=true,stride=4"].set_index("factor")
    for column in ("window_perplexity", "perplexity"):
        values = " | ".join(f"{figures.loc[factor, column]:.3f}" for factor in (1, 2))
        assert f"| RoPE | {'windows' if column != 'perplexity' else 'tokens'} | {values} |" in yarn
    for end in ("", *NAMES.values()):
        assert Path(f"report/loss_by_ev{end}.parquet").exists(), end
    assert page.index("## Protocol windows\n") < page.index("## Protocol sliding"), "the paper's comes first"

    lines = cli("compare", ckpt / "rope", "--json").succeeded().out.splitlines()
    assert {json.loads(line)["protocol"] for line in lines} == {*NAMES, "windows"}


def test_several_arguments_take_parentheses(cli, ckpt: Path) -> None:
    asked = ["--protocol", "(sliding:stride=4,bos=true),windows", "--json"]
    ended = cli("eval-lengths", ckpt / "rope", *FEW, *asked).succeeded()
    found = {json.loads(line)["protocol"] for line in ended.out.splitlines()}
    assert found == {"sliding:bos=true,stride=4", "windows"}
