"""A run as a model of lm-eval, which scores and continues texts.

Importing this registers it: `simple_evaluate(model="extrapolate", model_args={"run": "ckpt/rope"})`.
Shapes: W windows of one length, T tokens and the next one, P places at the end of a window, A texts that differ only in
their last token.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from extrapolate.data import special_tokens
from extrapolate.data.special_tokens import SpecialTokens
from extrapolate.errors import UserError
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.evaluation.causality import check_longest
from extrapolate.evaluation.losses import OnBatch, Scores, ignored, scores_at
from extrapolate.evaluation.plans import AppliedExtensions, extension_to_apply, plan_for_texts
from extrapolate.evaluation.precision import in_precision, storage_of
from extrapolate.evaluation.window_losses import Inputs
from extrapolate.interop.generation import caches, generated
from extrapolate.machine.devices import device_of
from extrapolate.model.causality import may_leak
from extrapolate.names import AS_TRAINED
from extrapolate.runs.run import Run

MOST_NEW = 256  # tokens to generate unless a task says otherwise, as in lm-eval's own models
Tokens = list[int]


@register_model("extrapolate")
class RunLM(TemplateLM):  # type: ignore[misc, unused-ignore] # without lm-eval it is Any
    """A run with one extension, at one length.

    run: a run, its folder, or a model of another library. length: the most tokens that the model reads at once, and
    the evaluation length of the extension, even for shorter texts (default: the length of the training windows).
    Longer texts lose their first tokens. extend: one extension. precision: `fp32`, `bf16` or `int8`. device: `cpu`,
    `cuda` or `auto`. advance: called after every batch.

    Texts are not padded: those of the same length are computed together, and those that differ only in their last
    token are computed once. `cut` has the task and number of every question that was cut. Raises UserError if the run
    cannot be evaluated with these settings.
    """

    def __init__(
        self,
        run: "str | Path | AnyRun",
        *,
        length: int | None = None,
        extend: str | AppliedExtensions = AS_TRAINED,
        precision: str = "fp32",
        device: str = "auto",
        advance: OnBatch = ignored,
    ) -> None:
        super().__init__()
        self.run: AnyRun = Run.open(Path(run)) if isinstance(run, str | Path) else run
        self.max_length = self.run.config.trained_length if length is None else length
        self.precision, self.advance = precision, advance
        self.checkpoint = self.run.checkpoints("last")[-1]
        self.loaded = self.run.load_model(self.checkpoint).to(device_of(device))
        self.model = in_precision(self.loaded, precision).to(device_of(device))
        if isinstance(extend, str):
            extend = extension_to_apply(self.run, self.loaded, extend)
        self.applied: AppliedExtensions = extend
        self.plan = plan_for_texts(self.run, self.loaded, extend, self.max_length)
        self._checked = 1  # tokens of the longest window for which it is known what a user's code sees
        self.cut: set[tuple[str | None, int | None]] = set()
        self._cut_requests: list[bool] = []

    @cached_property
    def _tokenizer(self) -> Any:
        return self.run.tokenizer

    @cached_property
    def _special(self) -> SpecialTokens:
        return self.run.special_tokens

    @cached_property
    def _before(self) -> Tokens:
        """What the tokenizer puts before each text. What it puts after a text is no text, so it is never read."""
        return special_tokens.around(self._tokenizer)[0]

    @property
    def eot_token_id(self) -> int:
        """The id of the end-of-text token. Raises UserError if the tokenizer has none."""
        if not self._special.eos:
            raise UserError(f"the tokenizer of {self.run.path} has no end-of-text token, which a text would begin with")
        return self._special.eos[0]

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without a context: that which the tokenizer puts there, or begins or ends texts."""
        before = [*self._before, *([] if self._special.bos is None else [self._special.bos])]
        return before[0] if before else self.eot_token_id

    @property
    def tokenizer_name(self) -> str:
        """A name that identifies the tokenizer."""
        return str(self.run.path)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> Tokens:
        """The tokens of a text, after those that the tokenizer puts before it unless told not to, or the text does."""
        ids = list(self._tokenizer.encode(string, add_special_tokens=False).ids)
        begun = add_special_tokens is False or ids[: len(self._before)] == self._before
        return ids if begun else [*self._before, *ids]

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """For each context and continuation: the log-likelihood in nats, and whether greedy decoding would give it."""
        found = super().loglikelihood(requests, disable_tqdm=True)
        pairs = zip(requests, self._cut_requests, strict=True)
        self.cut |= {(request.task_name, request.doc_id) for request, was_cut in pairs if was_cut}
        return cast(list[tuple[float, bool]], found)

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, Tokens, Tokens]], disable_tqdm: bool = True, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        wholes: list[Tokens] = []
        self._cut_requests = []
        for asked, context, answer in requests:
            if not 0 < len(answer) <= self.max_length:
                text = "" if asked is None else f" ({asked[1][:40]!r})"
                raise UserError(f"an answer{text} has {len(answer)} tokens: give a `length` of as many, or more")
            whole = [*(context or [self.prefix_token_id]), *answer]  # a blank context has no tokens
            self._cut_requests.append(len(whole) > self.max_length + 1)
            wholes.append(whole[-(self.max_length + 1) :])
        found: dict[int, tuple[float, bool]] = {}
        for inputs, numbers_WA in _together(wholes):
            tokens_WT = np.array([wholes[numbers[0]] for numbers in numbers_WA])
            last_WA = np.array([[wholes[number][-1] for number in numbers] for numbers in numbers_WA])
            longest = max(len(requests[number][2]) for numbers in numbers_WA for number in numbers)
            self._check(inputs)
            scores = self._scores(tokens_WT, inputs, longest, last_WA)
            assert scores.likeliest_WP is not None
            for numbers, loss_P, likeliest_P in zip(numbers_WA, scores.loss_WP, scores.likeliest_WP, strict=True):
                for at, number in enumerate(numbers):
                    own = [*range(longest - len(requests[number][2]), longest - 1), longest - 1 + at]
                    found[number] = -float(loss_P[own].sum(dtype=np.float64)), bool(likeliest_P[own].all())
        for number, (asked, _, _) in enumerate(requests):
            if asked is not None:
                self.cache_hook.add_partial("loglikelihood", asked, found[number])
        return [found[number] for number in range(len(requests))]

    def _scores(self, tokens_WT: np.ndarray, inputs: int, scored: int, last_WA: np.ndarray) -> Scores:
        """Scores of the last tokens of windows of `inputs` tokens: see `scores_at`."""
        return scores_at(
            self.model, tokens_WT.__getitem__, len(tokens_WT), inputs, np.arange(inputs - scored, inputs),
            self.plan, precision=self.precision, likeliest=True, last_WA=last_WA, progress=self.advance,
        )  # fmt: skip

    def _check(self, length: int) -> None:
        """Raises UserError if the model may see later tokens, and does in windows of so many, the longest so far."""
        applied = self.applied.joined()
        if length > self._checked and (may_leak(self.loaded) or (applied is not None and applied.files)):
            check_longest(self.loaded, self.plan, [length], self.run.path)
            self._checked = length

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = True) -> list[float]:
        """The log-likelihood of whole texts in nats, window after window, with each token scored once."""
        windows: list[tuple[Any, Tokens, Tokens]] = []
        owners: list[int] = []
        for number, request in enumerate(requests):
            tokens = self.tok_encode(request.args[0])[len(self._before) :]  # the text alone
            for pair in get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, context_len=1):
                windows.append((None, *make_disjoint_window(pair)))
                owners.append(number)
        totals = [0.0] * len(requests)
        for number, (likelihood, _) in zip(owners, self._loglikelihood_tokens(windows), strict=True):
            totals[number] += likelihood
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
        """Continues each context by greedy decoding, up to one of the task's stop strings.

        Raises UserError if a task asks for sampling, or for more tokens than fit into the length.
        """
        found = []
        longest = max((len(self.tok_encode(request.args[0])) for request in requests), default=0)
        for request in requests:
            context, asked = request.args
            text, was_cut = self._generated(context, asked, longest)
            if was_cut:
                self.cut.add((request.task_name, request.doc_id))
            self.cache_hook.add_partial("generate_until", request.args, text)
            found.append(text)
        return found

    def _generated(self, context: str, asked: Mapping[str, Any], longest: int) -> tuple[str, bool]:
        options = normalize_gen_kwargs(dict(asked), MOST_NEW)
        if options.get("do_sample"):
            raise UserError("the task draws tokens at random, which is not done here: only the likeliest are taken")
        most = int(options["max_gen_toks"])
        if most >= self.max_length:
            raise UserError(
                f"the task generates up to {most} tokens: give a `length` above that, not {self.max_length}"
            )
        self._check(min(self.max_length, longest + most))
        tokens = self.tok_encode(context) or [self.prefix_token_id]
        kept = tokens[-(self.max_length - most) :]
        ends = [end for end in options["until"] if end]

        def text_of(new: Tokens) -> str:
            text = self._tokenizer.decode(new)
            return text[: min((at for at in map(text.find, ends) if at >= 0), default=len(text))]

        def ended(new: Tokens) -> bool:
            return new[-1] in self._special.eos or any(end in self._tokenizer.decode(new) for end in ends)

        new = self._new(kept, most, ended)
        self.advance(len(kept) + len(new), float("nan"))
        return text_of(new), len(kept) < len(tokens)

    def _new(self, tokens: Tokens, most: int, ended: Callable[[Tokens], bool]) -> Tokens:
        """The tokens that follow: see `generated`."""
        setting = self.model.resolve(self.plan, storage_of(self.precision))
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            return generated(self.model, tokens, most, setting, ended)


class CountingLM(RunLM):
    """Counts the inputs of all requests instead of computing them; answers mean nothing.

    read: the inputs by (length of the window, targets in it). Each new token of a continuation is a window of its own
    with one input, of as many as the task allows.
    """

    def __init__(self, run: "AnyRun", **settings: Any) -> None:
        super().__init__(run, **settings)
        self.read: Inputs = Counter()

    def _scores(self, tokens_WT: np.ndarray, inputs: int, scored: int, last_WA: np.ndarray) -> Scores:
        self.read[inputs, scored] += inputs * len(tokens_WT)
        zero_WP = np.zeros((len(tokens_WT), scored - 1 + last_WA.shape[1]), np.float32)
        return Scores(zero_WP, zero_WP > 0)

    def _new(self, tokens: Tokens, most: int, ended: Callable[[Tokens], bool]) -> Tokens:
        self.read[len(tokens), 1] += len(tokens)
        for length in range(len(tokens) + 1, len(tokens) + most):
            self.read[(1, 1) if caches(self.model) else (length, 1)] += 1 if caches(self.model) else length
        return []

    def generate(self, most: int) -> Tokens:
        """Generates a number of tokens, to time one."""
        return super()._new([self.eot_token_id], most, lambda new: False)

    def _check(self, length: int) -> None:
        """Nothing is computed."""


def _together(wholes: Sequence[Tokens]) -> list[tuple[int, list[list[int]]]]:
    """Groups texts, by number, into batches with the length of their inputs, the longest first.

    Texts that differ only in their last token, such as the answers A, B, C and D to a question, have the same inputs
    and are one window. A batch has windows of the same length that stand for the same number of texts.
    """
    same_inputs: dict[tuple[int, ...], list[int]] = {}
    for number, whole in enumerate(wholes):
        same_inputs.setdefault(tuple(whole[:-1]), []).append(number)
    found: dict[tuple[int, int], list[list[int]]] = {}
    for inputs, numbers in same_inputs.items():
        found.setdefault((len(inputs), len(numbers)), []).append(numbers)
    return [(length, windows) for (length, _), windows in sorted(found.items(), reverse=True)]
