"""The commands' help lists what the registries hold, without importing them."""

import re

import pytest

from extrapolate.cli import registered
from extrapolate.data.probes.base import probes
from extrapolate.data.sources.base import form, sources
from extrapolate.data.sources.local.base import kinds
from extrapolate.data.synthetic.base import processes
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.runs.presets import PRESETS


@pytest.mark.parametrize(
    ("folder", "registry"),
    [
        ("data/probes", probes), ("data/sources", sources), ("data/sources/local", kinds),
        ("data/synthetic", processes), ("evaluation/protocols", protocols),
    ],
)  # fmt: skip
def test_the_files_say_what_is_registered(folder, registry):
    assert list(registered.registered(folder)) == registry.names()


def test_constants_are_those_of_the_class():
    for name, values in registered.registered("data/probes").items():
        assert values["marker"] == str(probes[name].marker)
    limits = {name: protocols[name].max_targets for name in protocols.names()}
    told = dict(part.rsplit(" ", 1) for part in registered.most_targets().split(", "))
    assert {name: int(told.get(name, told["the others"])) for name in limits} == limits


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("tokenize", [*map(form, sources.names()), *kinds.names(), *processes.names()]),
        ("train", [*PRESETS, *probes.names()]),
        ("eval-lengths", [*protocols.names(), *probes.names()]),
        ("bench", PRESETS),
    ],
)
def test_help_lists_them(cli, command, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    shown = re.sub(r"-\n\s*", "-", cli(command, "--help").succeeded().out)  # lines may end within flip-flop
    assert [word for word in words if word not in shown] == []


@pytest.mark.parametrize("source", ["synthetic", "synthetic:"])
def test_synthetic_text_without_a_process_lists_them(cli, source):
    message = cli("tokenize", source).error()
    assert all(f"synthetic:{name}" in message for name in processes.names())
