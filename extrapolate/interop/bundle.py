"""One file of Python with what a model needs of this package: its own source, so that no formula is written twice.

The file needs torch and the libraries that its parts import. It has the modules in the order of their imports, and of
each the statements that something needs. Their names stay, unless two modules have the same one.
"""

import graphlib
import io
import re
import tokenize
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from extrapolate.errors import UserError
from extrapolate.interop.modules import Module, Statement, file_of

Name = tuple[str, str]  # a module, and a name in it
_BRACES = re.compile(r"\{[^{}]*\}")


class Bundle:
    """The statements that some names need, of this package and of users' own files, each a module of its own."""

    def __init__(self, users: Mapping[str, Path]) -> None:
        """users: names for users' files, which are kept whole."""
        self.users = users
        self.modules: dict[str, Module] = {}
        self.kept: dict[str, set[Statement]] = {}
        self.names: set[Name] = set()
        self.imports: dict[str, set[str]] = {}  # of a module that is kept, the modules whose names it needs
        for name in users:
            for statement in self.module(name).statements:
                self._keep(name, statement)

    def module(self, name: str) -> Module:
        """A module, read once. Raises UserError if a user's file imports what this package does not have."""
        if name not in self.modules:
            path = self.users.get(name) or file_of(name)
            if path is None:
                raise UserError(f"there is no module {name}")
            self.modules[name] = Module.read(name, path)
        return self.modules[name]

    def need(self, module: str, name: str) -> str:
        """Takes in what defines a name, and all that this needs; returns the module that defines it."""
        module, name = self._origin(module, name)
        if (module, name) not in self.names:
            self.names.add((module, name))
            for statement in self.module(module).defined[name]:
                self._keep(module, statement)
        return module

    def _origin(self, module: str, name: str) -> Name:
        """Where a name is defined, which may be another module than the one that it is imported from."""
        while name not in self.module(module).defined:
            source, known_as = self.module(module).ours.get(name, (module, None))
            if known_as is None:
                raise UserError(f"{self.module(module).path} has no {name}")
            module, name = source, known_as
        return module, name

    def _keep(self, name: str, statement: Statement) -> None:
        kept = self.kept.setdefault(name, set())
        if statement in kept:
            return
        kept.add(statement)
        self.names |= {(name, own) for own in statement.defines}
        module, imports = self.module(name), self.imports.setdefault(name, set())
        for needed in sorted(statement.needs - statement.defines):
            source, known_as = (name, needed) if needed in module.defined else module.ours.get(needed, ("", None))
            if known_as is not None:
                imports.add(self.need(source, known_as))
        for alias, attribute in sorted(statement.attributes):
            source, known_as = module.ours.get(alias, ("", ""))
            if known_as is None:
                imports.add(self.need(source, attribute))

    def text(self) -> str:
        """The file, without a title. Raises UserError if two modules import different things by one name."""
        unique = self._unique
        imports: dict[str, str] = {}
        parts = []
        for name in self._order:
            module = self.modules[name]
            statements = [one for one in module.statements if one in self.kept[name]]
            mentioned = frozenset().union(*(one.mentions | one.defines for one in statements))
            for local in sorted(module.others.keys() & mentioned):
                if imports.setdefault(local, module.others[local]) != module.others[local]:
                    raise UserError(f"{module.path}: import {local} under another name, for the model has one already")
            aliases = [local for local in sorted(mentioned) if module.ours.get(local, ("", ""))[1] is None]
            renamed = self._renamed(module, mentioned, unique)
            place = name.replace(".", "/") + ".py" if name not in self.users else "a file of the user"
            parts.append("\n".join([f"# ---- {place}", *([f"# {module.title}"] if module.title else [])]))
            parts += [f"{alias} = sys.modules[__name__]  # its parts are in this file" for alias in aliases]
            parts += [_with_names(one, renamed, module.path) for one in statements]
            if aliases:
                imports["sys"] = "import sys"
        lines = sorted(set(imports.values()), key=lambda line: (line.startswith("from"), line))
        return "\n".join(["from __future__ import annotations", "", *lines]) + "\n\n\n" + "\n\n\n".join(parts) + "\n"

    def called(self, module: str, name: str) -> str:
        """What a name that is needed is called in the file. To be asked when all that is needed was said."""
        return self._unique[self._origin(module, name)]

    def _keep_nameless(self) -> None:
        """Functions called `_` are there for what decorates them, which must be there itself."""
        changed = True
        while changed:
            changed = False
            for name, module in list(self.modules.items()):
                for one in module.defined.get("_", []):
                    if one not in self.kept.get(name, set()) and any((name, need) in self.names for need in one.needs):
                        self._keep(name, one)
                        changed = True

    @cached_property
    def _order(self) -> list[str]:
        """The modules of which something is kept, each after those that it imports."""
        self._keep_nameless()
        # Sorted, so that one run always gives one file.
        graph = {name: sorted(self.imports[name] - {name}) for name in sorted(self.imports)}
        return list(graphlib.TopologicalSorter(graph).static_order())

    @cached_property
    def _unique(self) -> dict[Name, str]:
        """What each kept name is called in the file: itself, unless another module had it first."""
        taken = {local for name in self._order for local in self.modules[name].others}
        unique: dict[Name, str] = {}
        for module in self._order:
            for name in sorted(own for where, own in self.names if where == module and own != "_"):
                new = name
                while new in taken:
                    new = f"{new}_of_{module.rpartition('.')[2]}"
                taken.add(new)
                unique[module, name] = new
        return unique

    def _renamed(self, module: Module, mentioned: frozenset[str], unique: Mapping[Name, str]) -> dict[str, str]:
        """The local names of a module that are called otherwise in the file."""
        found = {}
        for local in mentioned:
            if local in module.defined:
                found[local] = unique.get((module.name, local), local)
            elif (source := module.ours.get(local)) is not None and source[1] is not None:
                found[local] = unique.get(self._origin(source[0], source[1]), local)
        return {local: new for local, new in found.items() if local != new}


def _with_names(statement: Statement, renamed: Mapping[str, str], path: Path) -> str:
    """A statement's text with other names. Raises UserError if one is an argument's name, too."""
    wanted = {name: new for name, new in renamed.items() if name in statement.mentions | statement.defines}
    if not wanted:
        return statement.text
    if both := sorted(wanted.keys() & statement.bound):
        raise UserError(
            f"{path}: call {both[0]} otherwise: the model has one already, and as the name of an argument, of a part "
            "of a class, or of an import within a statement it cannot be changed"
        )
    inside = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, wanted))})\b")
    starts = list(accumulate((len(line) + 1 for line in statement.text.split("\n")), initial=0))
    text, end, before = "", 0, ""
    for token in tokenize.generate_tokens(io.StringIO(statement.text).readline):
        new = token.string
        if token.type == tokenize.NAME and before != ".":
            new = wanted.get(new, new)
        elif token.type == tokenize.STRING and "f" in new.partition(new[-1])[0].lower():
            # A formatted text is one token before Python 3.12.
            new = _BRACES.sub(lambda braces: inside.sub(lambda name: wanted[name[1]], braces[0]), new)
        if new != token.string:
            start = starts[token.start[0] - 1] + token.start[1]
            text, end = text + statement.text[end:start] + new, start + len(token.string)
        before = token.string
    return text + statement.text[end:]
