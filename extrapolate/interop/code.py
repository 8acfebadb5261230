"""Copies the code of an exported model, whole modules of this package and users' files, into one folder.

A module `extrapolate.encodings.base` becomes `encodings_base.py`, and its imports from this package become relative.
Only modules that are imported are copied.
"""

import ast
import hashlib
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

from extrapolate import specs
from extrapolate.encodings.base import Encoding
from extrapolate.errors import UserError
from extrapolate.model.llama import Decoder
from extrapolate.version import __version__

PACKAGE, MODEL = "extrapolate", "extrapolate.transformers.model"
OWN, CONFIG_CLASS, MODEL_CLASS = "modeling_extrapolate", "ExtrapolateConfig", "ExtrapolateForCausalLM"
AUTO_MAP = {"AutoConfig": f"{OWN}.{CONFIG_CLASS}", "AutoModelForCausalLM": f"{OWN}.{MODEL_CLASS}"}
# The model_type if a user's file is needed, which `import extrapolate.transformers` does not know.
USERS_TYPE = "extrapolate-with-users-file"
# What users' files in the folder can import from `extrapolate`, and the modules that have it.
PUBLIC = {"Encoding": "encodings.base", "Extension": "extensions.base", "UserError": "errors"}


def of_user(cls: type) -> bool:
    """Whether a class is from a user's own file."""
    return cls.__module__.startswith(specs.USER_MODULE)


def code_of(model: Decoder, classes: Mapping[type, str]) -> dict[str, str]:
    """The files with a model's code, by name.

    classes: the classes of its encoding and extensions, with their names in the configuration. Raises UserError if a
    user's file imports something from this package that cannot be copied.
    """
    needed = dict.fromkeys([*classes, *(type(module) for module in model.modules() if isinstance(module, Encoding))])
    users = dict.fromkeys(cls.__module__ for cls in needed if of_user(cls))
    copies = _Copies({module: f"user_file_{number}" for number, module in enumerate(users)})
    for module in (MODEL, *(cls.__module__ for cls in needed)):
        copies.take(module)
    lines = ["", "", "# All other files, because transformers copies only files that an import line names."]
    lines += [f"from .{name} import __name__ as _" for name in sorted(copies.texts.keys() - {OWN})]
    for number, (cls, name) in enumerate(classes.items()):
        if of_user(cls):  # the package's own classes register themselves
            registry = "encodings" if issubclass(cls, Encoding) else "extensions"
            lines.append(f"from .{copies.take(cls.__module__)} import {cls.__name__} as part_{number}")
            lines.append(f"{registry}.register({name!r})(part_{number})")
    if users:
        lines.append(f"{CONFIG_CLASS}.model_type = {USERS_TYPE!r}")
    copies.texts[OWN] += "\n".join(lines) + "\n"
    # Operator names are unique in a process, which may load several such folders beside this package.
    own = hashlib.sha256("".join(copies.texts.values()).encode()).hexdigest()[:12]
    return {
        f"{name}.py": text.replace('custom_op("extrapolate::', f'custom_op("extrapolate_{own}::')
        for name, text in copies.texts.items()
    }


class _Copies:
    """Copies of modules, and of everything that they import from this package."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """users: the modules of users' files, with the names of their copies without `.py`."""
        self.names = {MODEL: OWN, PACKAGE: "public", **users}
        self.texts: dict[str, str] = {}  # by the name of the file, without `.py`

    def take(self, module: str) -> str:
        """Copies a module unless it is copied already, and returns the name of its file without `.py`."""
        name = self.names.get(module) or module.removeprefix(f"{PACKAGE}.").replace(".", "_")
        if name not in self.texts:
            self.texts[name] = self._copied(module)
        return name

    def _copied(self, module: str) -> str:
        path = _file_of(module)
        if path is None:
            raise UserError(f"{module} cannot be exported: it is neither a module of {PACKAGE} nor in a file of yours")
        if module == PACKAGE:
            source = "".join(f"from {PACKAGE}.{place} import {name}\n" for name, place in PUBLIC.items())
        else:
            with tokenize.open(path) as file:  # in the encoding that the file declares
                source = file.read()
        tree = ast.parse(source)
        for_types = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
            for statement in node.body
            for inner in ast.walk(statement)
        }
        lines = source.encode().split(b"\n")  # as Python counts lines and columns
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and _is_ours(node)]
        for node in sorted(imports, key=lambda node: (node.lineno, node.col_offset), reverse=True):
            new = "pass" if node in for_types else "; ".join(self._relative(node, path))
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            line = lines[first][: node.col_offset] + new.encode() + lines[last][node.end_col_offset :]
            lines[first : last + 1] = [line]
        origin = "A file of a user" if module.startswith(specs.USER_MODULE) else f"{module}, licence Apache-2.0"
        # Two lines, so that an encoding declaration moves to the third line and has no effect: the copy is in UTF-8.
        title = f"# {origin}.\n# Copied by extrapolate {__version__}, which made imports relative.\n"
        return title + b"\n".join(lines).decode()

    def _relative(self, node: ast.Import | ast.ImportFrom, path: Path) -> Iterator[str]:
        """The statements that replace one that imports from this package."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not _is_ours(ast.Import([alias])):
                    yield ast.unparse(ast.Import([alias]))
                elif "." in alias.name and alias.asname is None:
                    raise UserError(f"{path}: import {alias.name} under a name: import {alias.name} as base")
                else:
                    yield f"from . import {self.take(alias.name)} as {alias.asname or alias.name}"
            return
        names = []
        for alias in node.names:
            if _file_of(f"{node.module}.{alias.name}"):
                yield f"from . import {self.take(f'{node.module}.{alias.name}')} as {alias.asname or alias.name}"
            elif node.module == PACKAGE and alias.name not in PUBLIC:
                allowed = ", ".join(PUBLIC)
                raise UserError(f"{path}: an exported model cannot import {alias.name} from {PACKAGE}, only {allowed}")
            else:
                names.append(alias)
        if names:
            yield ast.unparse(ast.ImportFrom(self.take(str(node.module)), names, level=1))


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return any(module.partition(".")[0] == PACKAGE for module in modules)


def _file_of(module: str) -> Path | None:
    """The file of a user's module, or of one of this package; None if there is none."""
    if module.startswith(specs.USER_MODULE):
        return Path(str(sys.modules[module].__file__))
    stem = Path(__file__).parents[2].joinpath(*module.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)
