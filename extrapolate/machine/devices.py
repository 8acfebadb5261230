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


def fast_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices natively."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def can_compile(device: str) -> bool:
    """Whether torch.compile finds a compiler."""
    return device == "cuda" or shutil.which("g++") is not None or shutil.which("clang++") is not None


def to_device(batch: Tensor, device: torch.device | str) -> Tensor:
    """Copies a CPU batch to a device. Copies to CUDA go through pinned memory and do not block."""
    device = torch.device(device)
    return (batch.pin_memory() if device.type == "cuda" else batch).to(device, non_blocking=True)
