"""Which arguments and sizes encodings refuse, and with which message."""

import dataclasses

import pytest

from extrapolate import specs
from extrapolate.encodings.base import Dims
from extrapolate.errors import UserError
from extrapolate.model.model import layer_encodings

DIMS = Dims(width=32, heads=2, head_dim=16, seq_len=16, layers=4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cope:count=1", "cope: count must be at least 2 positions, not 1"),
        ("dape:base=rope", "does not apply to RoPE: its base must have a bias"),
        ("dape:width=0", "dape: width must be positive, not 0"),
        ("darope:kept=-1", "darope: kept must be between 0 and 8 pairs, not -1"),
        ("darope:kept=9", "darope: kept must be between 0 and 8 pairs, not 9"),
        ("darope:length=0", "darope: length must be at least 1 token, not 0"),
        ("darope:spread=-0.1", "darope: spread must not be negative, not -0.1"),
        ("darope:theta=1", "theta must be more than 1, not 1"),
        ("expe:size=33", "expe: size must be between 0 and the width 32, not 33"),
        ("fire:depth=0", "must be positive"),
        ("fire:threshold=0", "must be positive"),
        ("fire:width=0", "must be positive"),
        ("fope:kept=0", "fope: kept must be between 1 and 8 pairs, not 0"),
        ("fox:form=hare", "form=hare is not fox or cable"),
        ("gape:length=0", "gape: length must be at least 1 token, not 0"),
        ("gape:p=2", "gape: p must be between 0 and 1, not 2"),
        ("grape:form=ap,width=0", "grape: width must be an even number of channels from 2 up, not 0"),
        ("grape:width=3", "grape: width must be an even number of channels from 2 up, not 3"),
        ("hope:kept=9", "hope: kept must be between 0 and 8 pairs, not 9"),
        ("hype:every=0", "hype: every must be between 1 and the 4 layers, not 0"),
        ("hype:every=5", "hype: every must be between 1 and the 4 layers, not 5"),
        ("hype:theta=1", "theta must be more than 1, not 1"),
        ("kerple:kernel=cubic", "kernel=cubic is not log or power"),
        ("lerope:theta=1", "theta must be more than 1, not 1"),
        ("p-rope:p=1.5", "p-rope: p must be between 0 and 1, not 1.5"),
        ("partial-rope:fraction=0.05", "an even number of them, and 0.05 makes 0"),
        ("partial-rope:fraction=0.2", "an even number of them, and 0.2 makes 3"),
        ("pope:theta=0", "pope: theta must be more than 1, not 0"),
        ("pose:base=fox", "pose does not apply to FoX"),
        ("pose:base=none", "pose does not apply to NoPE: it has no positions"),
        ("pose:curriculum=1.5", "curriculum must be a share of training, 0 to 1, not 1.5"),
        ("pose:curriculum=nan", "curriculum=nan is not a finite number"),
        ("pose:max=15", "pose: max must be at least the training length 16, not 15"),
        ("pose:max=16,curriculum=0.5", "must be above 16, not 16"),
        ("pose:max=16777217", "at most 16777216"),
        ("random:base=none", "random does not apply to NoPE: it has no positions"),
        ("random:base=rop", "did you mean 'rope'"),
        ("repo:size=0", "repo: size must be at least 1, not 0"),
        ("repo:start=-1", "repo: start must be between 0 and the 4 layers, not -1"),
        ("repo:start=5", "repo: start must be between 0 and the 4 layers, not 5"),
        ("repo:theta=1", "theta must be more than 1, not 1"),
        ("retention:theta=1", "theta must be more than 1, not 1"),
        ("retention:theta=x", "theta=x is not a finite number"),
        ("rfs:base=learned", "rfs does not apply to Learned: it has no positions between whole ones"),
        ("rfs:base=none", "rfs does not apply to NoPE"),
        ("rfs:curriculum=-0.5", "rfs: curriculum must be a share of training, 0 to 1, not -0.5"),
        ("rfs:curriculum=0.5", "must be above 16, not 16"),
        ("rfs:max=0", "rfs: max must be at least 1, not 0"),
        ("rfs:max=16777217", "at most 16777216"),
        ("rnope:every=5", "rnope: every must be between 1 and the 4 layers, not 5"),
        ("rope-id:fast=0", "rope-id: fast must be a positive number of tokens a turn and at most slow, not 0 and 8"),
        ("rope-id:fast=12", "rope-id: fast must be a positive number of tokens a turn and at most slow, not 12 and 8"),
        ("rope-id:kept=-1", "rope-id: kept must be between 0 and 8 pairs, not -1"),
        ("rope-id:kept=9", "rope-id: kept must be between 0 and 8 pairs, not 9"),
        ("rope-id:length=0", "rope-id: length must be at least 1 token, not 0"),
        ("rope-id:slow=-1", "rope-id: fast must be a positive number of tokens a turn and at most slow, not -1 and -1"),
        ("rope-id:temperature=-0.1", "rope-id: temperature must not be negative, not -0.1"),
        ("rope-pp:theta=1", "theta must be more than 1, not 1"),
        ("rope:theta=1", "rope: theta must be more than 1, not 1"),
        ("sandwich:size=0", "sandwich: size must be a positive even number, not 0"),
        ("sandwich:size=5", "sandwich: size must be a positive even number, not 5"),
        ("scale-invariant:kept=9", "scale-invariant: kept must be between 0 and 8 pairs, not 9"),
        ("scale-invariant:tau=0", "scale-invariant: tau must be more than 0 tokens, not 0"),
        ("selective-rope:rank=0", "selective-rope: rank must be at least 1, not 0"),
        ("selective-rope:theta=1", "theta must be more than 1, not 1"),
        ("shaw:max_distance=0", "shaw: max_distance must be at least 1 token, not 0"),
        ("sinusoidal:theta=0", "sinusoidal: theta must be positive, not 0"),
        ("stick-breaking:remainder=kept", "remainder=kept is not dropped or current"),
        ("t5:buckets=32,max_distance=16", "t5: max_distance must be more than 16, half the buckets, not 16"),
        ("t5:buckets=7", "t5: buckets must be an even number, not 7"),
        ("tapa:amplitude=0.01", "tapa: amplitude must leave both parts some of the 16 channels, not 0.01"),
        ("tapa:amplitude=1", "tapa: amplitude must leave both parts some of the 16 channels, not 1"),
        ("tapa:power=0", "tapa: power must be more than 0, not 0"),
        ("wall:gate_bias=nan", "gate_bias=nan is not a finite number"),
        ("xpos:gamma=0", "xpos: scale_base and gamma must be positive, not 16 and 0"),
    ],
)
def test_arguments_that_are_refused(spec: str, message: str) -> None:
    parsed = specs.parse(spec)
    with pytest.raises(UserError, match=message):
        layer_encodings(parsed.name, parsed.arguments, DIMS)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("retention", {"head_dim": 5}, "needs an even head size, not 5"),
        ("rope", {"head_dim": 15}, "rope needs an even head size, not 15"),
        ("rope-pp", {"heads": 3}, "rope-pp needs an even number of heads, not 3"),
        ("selective-rope", {"width": 33}, "cuts the width into one piece per head: 33 is no multiple of 2"),
        ("sinusoidal", {"width": 31}, "sinusoidal needs an even width, not 31"),
    ],
)
def test_sizes_that_are_refused(name: str, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        layer_encodings(name, {}, dataclasses.replace(DIMS, **sizes))
