"""Makes `transformers` know the models of this project, in this process: `import extrapolate.transformers`.

After that, `AutoModelForCausalLM.from_pretrained` loads what `extrapolate export` wrote without `trust_remote_code`.
"""

try:
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as error:
    raise ImportError(
        "extrapolate.transformers needs the package transformers: pip install 'extrapolate[peers]'"
    ) from error

from extrapolate.transformers.model import ExtrapolateConfig, ExtrapolateForCausalLM

AutoConfig.register(ExtrapolateConfig.model_type, ExtrapolateConfig)
AutoModelForCausalLM.register(ExtrapolateConfig, ExtrapolateForCausalLM)
