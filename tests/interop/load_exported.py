"""Loads exported folders without this package and prints what it finds.

python load_exported.py FOLDER: each subfolder is an exported run with `expected.safetensors`, which has tokens and
logits by length. Prints one JSON object with the findings by the subfolder's name.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.modules["extrapolate"] = None  # importing it fails

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def look(folder: Path) -> dict[str, Any]:
    """Compares what a folder's model computes with what it should, and generates with and without a cache."""
    remote = (folder / "modeling_extrapolate.py").exists()
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=remote, output_loading_info=True
    )
    found: dict[str, Any] = {"class": type(model).__name__, "unloaded": sorted(info["missing_keys"])}
    found["unknown"] = sorted(info["unexpected_keys"])
    expected = load_file(folder / "expected.safetensors")
    with torch.no_grad():
        for name in [name for name in expected if name.startswith("tokens")]:
            length = name.removeprefix("tokens")
            try:
                logits = model(expected[name]).logits
            except ValueError as error:
                found[length] = str(error)
                continue
            found[length] = (logits - expected[f"logits{length}"]).abs().max().item()
        if not remote:  # of transformers' classes, whose fused attention has no weights
            model.set_attn_implementation("eager")
        weights = [w for w in model(expected["prompt"][:1], output_attentions=True).attentions if w is not None]
        own = expected.get("attention", torch.zeros(0))  # layers without attention have none
        found["attention"] = (torch.cat(weights) - own).abs().max().item() if weights else float(len(own))
        model.set_attn_implementation("sdpa")
        prompt, new = expected["prompt"], len(expected["new"])
        options = {"max_new_tokens": new, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        without = model.generate(prompt, use_cache=False, **options)
        usual = model.generate(prompt, **options)
        found["cache"] = usual.past_key_values is not None
        pairs = zip(without.logits, usual.logits, strict=True)
        found["generated"] = max((one - other).abs().max().item() for one, other in pairs)
    return found


if __name__ == "__main__":
    folders = sorted(path for path in Path(sys.argv[1]).iterdir() if (path / "config.json").exists())
    print(json.dumps({folder.name: look(folder) for folder in folders}))
