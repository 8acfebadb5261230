"""The commands' help lists what the registries hold, without importing them."""

import re

from extrapolate.cli import registered
from extrapolate.data.probes.base import probes
from extrapolate.data.sources.base import form, sources
from extrapolate.data.sources.local.base import kinds
from extrapolate.data.synthetic.base import processes
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.runs.presets import PRESETS


def test_the_files_say_what_is_registered():
    for folder, registry in (
        ("data/probes", probes), ("data/sources", sources), ("data/sources/local", kinds),
        ("data/synthetic", processes), ("evaluation/protocols", protocols),
    ):  # fmt: skip
        assert list(registered.registered(folder)) == registry.names()


def test_constants_are_those_of_the_class():
    for name, values in registered.registered("data/probes").items():
        assert values["marker"] == str(probes[name].marker)
    limits = {name: protocols[name].max_targets for name in protocols.names()}
    told = dict(part.rsplit(" ", 1) for part in registered.most_targets().split(", "))
    assert {name: int(told.get(name, told["the others"])) for name in limits} == limits


def test_help_lists_them(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    for command, words in (
        ("tokenize", [*map(form, sources.names()), *kinds.names(), *processes.names()]),
        ("train", [*PRESETS, *probes.names()]),
        ("eval-lengths", [*protocols.names(), *probes.names()]),
    ):
        shown = re.sub(r"-\n\s*", "-", cli(command, "--help").succeeded().out)  # lines may end within flip-flop
        assert [word for word in words if word not in shown] == []


def test_synthetic_text_without_a_process_lists_them(cli):
    message = cli("tokenize", "synthetic").error()
    assert all(f"synthetic:{name}" in message for name in processes.names())
