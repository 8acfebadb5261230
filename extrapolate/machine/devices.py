"""The devices of this machine and what they can do."""

import shutil

import torch
from torch import Tensor

from extrapolate.errors import UserError


def device_of(wanted: str) -> str:
    """The device, with `auto` resolved. Raises UserError if torch knows no such device, or there is no CUDA."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("this machine has no CUDA device that torch can use; use `device='cpu'`")
    try:
        torch.device(wanted)
    except (RuntimeError, TypeError):
        raise UserError(f"unknown `device='{wanted}'`: use auto, cpu or cuda") from None
    return wanted


def fast_bf16(device: str) -> bool:
    """Whether a device multiplies bfloat16 matrices natively: GPUs before compute capability 8.0 only emulate it."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def precision_of(device: str) -> str:
    """What the precision `auto` stands for on a device: `bf16` if it is fast there, otherwise `fp32`."""
    return "bf16" if fast_bf16(device) else "fp32"


def chosen(device: str, precision: str) -> str:
    """Says where and in which precision something is computed, and why: `on cpu in fp32, because ...`."""
    name = f"{torch.cuda.get_device_name()} " if device == "cuda" else "this CPU "
    does = "multiplies bf16 matrices natively" if fast_bf16(device) else "only emulates bf16"
    why = "because" if precision == precision_of(device) else "as requested, although"
    return f"on {device} in {precision}, {why} {name}{does}"


def can_compile(device: str) -> bool:
    """Whether torch.compile finds a compiler."""
    return device == "cuda" or shutil.which("g++") is not None or shutil.which("clang++") is not None


def to_device(batch: Tensor, device: torch.device | str) -> Tensor:
    """Copies a CPU batch to a device. Copies to CUDA go through pinned memory and do not block."""
    device = torch.device(device)
    return (batch.pin_memory() if device.type == "cuda" else batch).to(device, non_blocking=True)
