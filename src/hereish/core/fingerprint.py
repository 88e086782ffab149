"""Parts by their settings, so that a part can be told from a sibling with other settings.

A saved state goes on only under the mechanism that made it, and keyed draws are a function of the
mechanism: both stand on this. A part that cannot show all its settings is refused there.

What a module has by its name is known by that name; whatever was made on the way (a lambda, a
class in a function, a decorated function) is shown with its code and all that it was made with.
"""

from __future__ import annotations

import datetime
import enum
import functools
import hashlib
import operator
import sys
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from hereish.errors import PartError

# Their reprs say all there is to them.
_PLAIN = {type(None), bool, int, float, complex, str, bytes, type(...), range, slice}
_PLAIN |= {datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone}
_DEEPEST = 20
_PYTHON_CLASS = 1 << 9  # of the flags of a type: it was not written in C
# What classes have without being given it, and what dataclasses make of what they are given.
_MACHINERY = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
    *("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__slots__"),
    *("__abstractmethods__", "_abc_impl", "_is_protocol", "_is_runtime_protocol"),
    *("__parameters__", "__orig_bases__", "__static_attributes__", "__firstlineno__"),
}
_OF_DATACLASSES = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"}


def fingerprint(part: Any) -> str:
    """A part by its name and all its settings, never by its address.

    Raises PartError if it holds something that cannot be shown.
    """
    return _shown(part, 0)


def _shown(part: Any, depth: int) -> str:
    if depth > _DEEPEST:
        raise _unshowable(part, "it holds itself, or things far too deep within each other")
    kind = type(part)
    if kind in _PLAIN or (isinstance(part, np.generic) and kind.__module__ == "numpy"):
        return repr(part)
    if isinstance(part, enum.Enum):
        return f"{_class(kind, depth)}.{part.name}({_shown(part.value, depth + 1)})"
    if kind is ZoneInfo and part.key is not None:
        return repr(part)
    if kind is np.ndarray and not part.dtype.hasobject:
        content = hashlib.sha256(np.ascontiguousarray(part).tobytes()).hexdigest()
        return f"array({part.dtype.descr}, {part.shape}, {content})"
    if kind in (list, tuple, set, frozenset, dict):
        return f"{kind.__qualname__}({_inside(part, depth)})"
    if isinstance(part, tuple) and hasattr(kind, "_fields"):
        return _class(kind, depth) + _listed(dict(zip(kind._fields, part, strict=True)), depth)
    if isinstance(part, type):
        return f"{part.__module__}." + _class(part, depth)
    return _called(part, depth) or _class(kind, depth) + _listed(_settings(part), depth)


def _called(part: Any, depth: int) -> str | None:
    """What is there to be called, and modules; None if it is neither."""
    if isinstance(part, types.FunctionType):
        return _function(part, depth)
    if isinstance(part, types.MethodType):
        return f"{_shown(part.__self__, depth + 1)}.{_shown(part.__func__, depth + 1)}"
    if type(part) is functools.partial:
        about = {"func": part.func, "args": part.args, "keywords": part.keywords, **vars(part)}
        return "partial" + _listed(about, depth)
    if isinstance(part, (staticmethod, classmethod)):
        return f"{type(part).__name__}({_shown(part.__func__, depth + 1)})"
    if isinstance(part, property):
        return "property" + _listed({"get": part.fget, "set": part.fset}, depth)
    if isinstance(part, functools.cached_property):
        return f"cached({_shown(part.func, depth + 1)})"
    if isinstance(part, types.ModuleType):
        return f"module {part.__name__}"
    if isinstance(part, np.ufunc):
        return _ufunc(part)
    if isinstance(part, types.BuiltinFunctionType):
        owner: Any = part.__self__
        free = owner is None or isinstance(owner, types.ModuleType)
        of = part.__module__ if free else _shown(owner, depth + 1)
        return f"{of}.{part.__name__}"
    return None


def _ufunc(part: Any) -> str:
    name: str = part.__name__
    if getattr(np, name, None) is not part:
        raise _unshowable(part, "nobody knows what it computes")
    return f"numpy.{name}"


def _inside(many: Any, depth: int) -> str:
    if isinstance(many, dict):
        pairs = ((_shown(k, depth + 1), _shown(v, depth + 1)) for k, v in many.items())
        return ", ".join(f"{key}: {value}" for key, value in sorted(pairs))
    each = [_shown(value, depth + 1) for value in many]
    return ", ".join(sorted(each) if isinstance(many, (set, frozenset)) else each)


def _is_named(thing: Any) -> bool:
    """Whether its name leads to it, and to nothing else."""
    module = sys.modules.get(thing.__module__ or "")
    try:
        return operator.attrgetter(thing.__qualname__)(module) is thing
    except AttributeError:
        return False


def _function(function: types.FunctionType, depth: int) -> str:
    """By its name and what it was made with; where the name is not its own, by its code too."""
    settings = {f"attribute {name}": value for name, value in vars(function).items()}
    settings.pop("attribute __wrapped__", None)  # what it wraps is among what it looks at
    settings |= {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
    settings |= {f"default {k}": value for k, value in (function.__kwdefaults__ or {}).items()}
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name == "__class__":  # of a method that says super()
            continue
        try:
            settings[f"free {name}"] = cell.cell_contents
        except ValueError:
            raise _unshowable(function, f"it looks at {name}, which is not there yet") from None
    name = f"{function.__module__}.{function.__qualname__}"
    if not _is_named(function):
        name += _code(code)
        settings |= {
            f"global {word}": function.__globals__[word]
            for word in sorted(set(code.co_names) & function.__globals__.keys())
            if type(function.__globals__[word]) in _PLAIN
        }
    return name + (_listed(settings, depth) if settings else "")


def _code(code: types.CodeType) -> str:
    constants = [
        _code(each)
        if isinstance(each, types.CodeType)
        # The order of a set changes from process to process.
        else repr(sorted(map(repr, each)) if isinstance(each, frozenset) else each)
        for each in code.co_consts
    ]
    about = (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars)
    return f"[{hashlib.sha256(repr(about).encode(errors='backslashreplace')).hexdigest()}]"


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "hereish" and _is_named(kind)


def _class(kind: type, depth: int) -> str:
    """A class by its name; one that a name does not lead to by all that is in it."""
    if _is_ours(kind):
        return kind.__qualname__
    name = f"{kind.__module__}.{kind.__qualname__}"
    if _is_named(kind):
        return name
    if depth > _DEEPEST:
        raise _unshowable(kind, "it holds itself, or things far too deep within each other")
    skipped = _MACHINERY | (_OF_DATACLASSES if "__dataclass_params__" in vars(kind) else set())
    made = {
        attribute: value
        for attribute, value in vars(kind).items()
        if attribute not in skipped
        if not isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType))
    }
    bases = ", ".join(_class(base, depth + 1) for base in kind.__bases__)
    return f"{name}<{bases}>{_listed(made, depth)}"


def _settings(part: Any) -> dict[str, Any]:
    """What an object was made with, and what its class says for all its objects."""
    if is_dataclass(part) and _is_ours(type(part)):
        # What is neither given nor shown was computed from the rest.
        shown = {f.name: getattr(part, f.name) for f in fields(part) if f.repr or f.init}
        # A setting that was added later is shown where it is used: older states stay theirs.
        later = {f.name: f.default for f in fields(part) if f.metadata.get("added_later")}
        return {name: v for name, v in shown.items() if name not in later or v != later[name]}
    classes = [kind for kind in reversed(type(part).__mro__) if kind is not object]
    if not all(kind.__flags__ & _PYTHON_CLASS for kind in classes):
        raise _unshowable(part, "it is not made of attributes")
    settings: dict[str, Any] = {}
    slots = False
    for kind in classes:
        if not _is_ours(kind) and kind.__module__ not in ("typing", "abc"):
            settings |= {
                name: value
                for name, value in vars(kind).items()
                if name not in _MACHINERY
                if not (callable(value) or hasattr(value, "__get__"))
            }
        for name, value in vars(kind).items():
            if isinstance(value, types.MemberDescriptorType):
                slots = True
                if hasattr(part, name) or name.startswith("__"):
                    settings[name] = value.__get__(part, type(part))
    if not (slots or hasattr(part, "__dict__")):
        raise _unshowable(part, "it is not made of attributes")
    return settings | dict(getattr(part, "__dict__", {}))


def _listed(settings: Mapping[str, Any], depth: int) -> str:
    return f"({', '.join(f'{k}={_shown(v, depth + 1)}' for k, v in settings.items())})"


def _unshowable(part: Any, why: str) -> PartError:
    return PartError(
        f"the settings of a {type(part).__qualname__} in a part cannot be shown, so the part could "
        f"not be told from one with others: {why}. Make the part a frozen dataclass, or a "
        "function, of numbers, texts and arrays"
    )


def number_of(text: str) -> int:
    """A number for a text, never 0, that fits 64 bits with a sign."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little", signed=True) or 1
