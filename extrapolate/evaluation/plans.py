"""The extensions applied to a run at inference, and the plan they give for a length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from extrapolate.data.store import Store
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.evaluation.any_run import Subject
from extrapolate.evaluation.fitting import fitted, inputs_of_fit
from extrapolate.evaluation.losses import OnBatch, ignored
from extrapolate.extensions import stack as stacks
from extrapolate.extensions.stack import ExtensionStack, UserFile
from extrapolate.folders import join_names
from extrapolate.model.language_model import LanguageModel
from extrapolate.names import ALL, AS_TRAINED, LONGEST, WITHOUT_OWN
from extrapolate.specs import truncate


@dataclass(frozen=True)
class AppliedExtensions:
    """The run's own extension, unless it is taken off, and an extra one."""

    own: ExtensionStack | None
    extra: ExtensionStack | None
    taken_off: ExtensionStack | None = None

    def joined(self) -> ExtensionStack | None:
        """Both as one stack, for checks and labels. Raises UserError if they clash."""
        if self.own is None or self.extra is None:
            return self.extra if self.own is None else self.own
        return self.own.joined(self.extra)

    def check_applies(self, model: LanguageModel) -> None:
        """Raises UserError if the two clash, or one of them does not apply to the model."""
        if (stack := self.joined()) is not None:
            stacks.check_applies(stack, model)

    def sha256(self) -> str | None:
        """The hash of the user's file that the extra one comes from, if any."""
        return None if self.extra is None else self.extra.sha256()

    def plan(self, run: Subject, model: LanguageModel, length: int) -> Plan:
        """The run's own extension starts from L, the extra one from the length that the weights were trained at."""
        plan = PLAIN if self.own is None else self.own.plan(model.encoding, model.seq_len, length)
        if self.extra is None:
            return plan
        return plan.joined(self.extra.plan(model.encoding, run.config.trained_length, length))

    def fits(self, run: Subject, length: int) -> bool:
        """Whether a constant is to be fitted at this length."""
        return self.extra is not None and self.extra.to_fit is not None and length > run.config.trained_length

    def inputs_to_fit(self, run: Subject, model: LanguageModel, store: Store, length: int) -> int:
        """An upper bound on the inputs that fitting a constant takes at this length; 0 if there is none to fit."""
        if self.extra is None or not self.fits(run, length):
            return 0
        return inputs_of_fit(self.extra, model, store.split("validation"), length)

    def expected_plan(self, run: Subject, model: LanguageModel, length: int) -> Plan:
        """As `plan`, with a placeholder for a constant that is yet to be fitted."""
        if self.extra is None or self.extra.to_fit is None:
            return self.plan(run, model, length)
        guess = 0.5 if self.fits(run, length) else 0.0
        return replace(self, extra=self.extra.fitted(guess)).plan(run, model, length)

    def fitted_plan(
        self,
        run: Subject,
        model: LanguageModel,
        store: Store,
        length: int,
        precision: str,
        progress: OnBatch = ignored,
    ) -> Plan:
        """As `plan`, with a missing constant fitted to validation text."""

        def plan_of(stack: ExtensionStack | None) -> Plan:
            return replace(self, extra=stack).plan(run, model, length)

        if self.extra is None or self.extra.to_fit is None:
            return plan_of(self.extra)
        validation, trained = store.split("validation"), run.config.trained_length
        return plan_of(fitted(self.extra, plan_of, model, validation, trained, length, precision, progress))


def plan_for_texts(run: Subject, model: LanguageModel, applied: AppliedExtensions, length: int) -> Plan:
    """The plan for arbitrary texts of up to `length` tokens.

    Raises UserError if a constant would have to be fitted, or the encoding is not defined at this length.
    """
    if not 2 <= length <= LONGEST:
        raise UserError(f"`length` must be between 2 and {LONGEST} tokens, not {truncate(length)}")
    if applied.fits(run, length):
        assert applied.extra is not None
        raise UserError(
            f"the extension {applied.extra.text} leaves a constant out, which only eval-lengths fits to text: give it"
        )
    plan = applied.expected_plan(run, model, length)
    if not model.defined_at(length, plan):
        raise UserError(f"{run.path}: the encoding is not defined at {length} tokens: give fewer")
    return plan


def extensions_to_evaluate(
    run: Subject, model: LanguageModel, extensions: Sequence[str]
) -> dict[str, AppliedExtensions]:
    """The extensions by their names in tables: the run as trained comes first, then those in `extensions`.

    Raises UserError if one is unknown, does not apply to the model, or clashes with the run's own.
    """
    own = run.own_extension
    found = {AS_TRAINED: AppliedExtensions(own, None)}
    texts = list(extensions)
    check_files(texts)
    if ALL in texts:
        joinable = [name for name in stacks.applicable(model) if own is None or stacks.joins(own, name)]
        texts = [text for text in texts if text != ALL] + [name for name in joinable if name not in texts]
    for text in texts:
        stack = parsed(text)
        if text == WITHOUT_OWN and own is not None:
            found[WITHOUT_OWN] = AppliedExtensions(None, None, taken_off=own)
        if stack is None:
            continue
        found[stack.text] = AppliedExtensions(own, stack)
        found[stack.text].check_applies(model)
    return found


def extension_to_apply(run: Subject, model: LanguageModel, text: str) -> AppliedExtensions:
    """A single extension. Raises UserError as `extensions_to_evaluate`, and if it is `all`."""
    if text == ALL:
        raise UserError(f"`extend={ALL}` stands for several extensions: name one")
    return list(extensions_to_evaluate(run, model, [text]).values())[-1]


def left_out(run: Subject, model: LanguageModel, extensions: Sequence[str]) -> dict[str, str]:
    """The extensions that do not apply to a run, each with the reason. Raises UserError if one is unknown."""
    found = {}
    for text in extensions:
        applied = AppliedExtensions(run.own_extension, parsed(text))
        try:
            applied.check_applies(model)
        except UserError as error:
            found[text] = str(error)
    return found


def lines_on(left_out: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Describes what is left out. left_out: the reason for each extension, by the name of the run or cell."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, reasons in left_out.items():
        for text, reason in reasons.items():
            names.setdefault((text, reason.partition("; what applies")[0]), []).append(name)
    return [f"{text} is left out for {join_names(alike)}: {reason}" for (text, reason), alike in names.items()]


def parsed(text: str) -> ExtensionStack | None:
    """The stack of an extension; None for the words `all`, `as-trained` and `without-own`."""
    return None if text in (ALL, WITHOUT_OWN, AS_TRAINED) else stacks.parse(text)


def users_files(extensions: Sequence[str]) -> list[UserFile]:
    """The users' files that extensions come from."""
    return [file for stack in map(parsed, extensions) if stack is not None for file in stack.files]


def check_files(extensions: Sequence[str]) -> None:
    """Raises UserError if different files have one name, by which rows know them, or an extension is unknown."""
    versions: dict[str, str] = {}
    for file in users_files(extensions):
        if versions.setdefault(file.path.name, file.sha256) != file.sha256:
            raise UserError(f"two different files are called {file.path.name}: rename one of them")
