"""The rows of documents that belong to rows of losses."""

import pytest

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.mark.parametrize("changed", [{"loss": 3.0}, {"n_targets": 513}])
def test_a_table_that_contradicts_its_documents_is_refused(cli, write_run, tmp_path, changed):
    """It was edited after the evaluation, in a program that wrote it without damage."""
    write_run(tmp_path / "ckpt/rope", lambda row: row | ({} if "document" in row else changed))
    for command in ("report", "compare"):
        said = cli(command, "ckpt").error()
        assert "rope: evals.parquet and eval_documents.parquet contradict each other (RoPE" in said
    assert not (tmp_path / "report").exists()
