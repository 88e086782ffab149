"""Parts by their settings, so that a part can be told from a sibling with other settings.

A saved state goes on only under the mechanism that made it, and keyed draws are a function of the
mechanism: both stand on this. A part that cannot show all its settings is refused there.
"""

from __future__ import annotations

import datetime
import enum
import functools
import hashlib
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from hereish.errors import PartError

# Their reprs say all there is to them.
_PLAIN = {type(None), bool, int, float, complex, str, bytes, type(...), range, slice}
_MOMENTS = (datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo)
_DEEPEST = 20
_MACHINERY = {"_abc_impl", "_is_protocol", "_is_runtime_protocol"}  # of abc and typing
_PYTHON_CLASS = 1 << 9  # of the flags of a type: it was not written in C


def fingerprint(part: Any) -> str:
    """A part by its name and all its settings, never by its address.

    Raises PartError if it holds something that cannot be shown.
    """
    return _shown(part, 0)


def _shown(part: Any, depth: int) -> str:
    if depth > _DEEPEST:
        raise _unshowable(part, "it holds itself, or things far too deep within each other")
    kind = type(part)
    if kind in _PLAIN or isinstance(part, (np.generic, enum.Enum, *_MOMENTS)):
        return repr(part)
    if kind is np.ndarray and not part.dtype.hasobject:
        content = hashlib.sha256(np.ascontiguousarray(part).tobytes()).hexdigest()
        return f"array({part.dtype.str}, {part.shape}, {content})"
    if kind in (list, tuple, set, frozenset, dict):
        return f"{kind.__qualname__}({_inside(part, depth)})"
    if isinstance(part, types.FunctionType):
        return _function(part, depth)
    if isinstance(part, types.MethodType):
        return f"{_shown(part.__self__, depth + 1)}.{_shown(part.__func__, depth + 1)}"
    if kind is functools.partial:
        about = {"func": part.func, "args": part.args, "keywords": part.keywords, **vars(part)}
        return "partial" + _listed(about, depth)
    if isinstance(part, (types.BuiltinFunctionType, np.ufunc, types.ModuleType)):
        return f"{getattr(part, '__module__', None) or 'builtins'}.{part.__name__}"
    if isinstance(part, type):
        return f"{part.__module__}." + _class(part, depth)
    return _class(kind, depth) + _listed(_class_settings(part) | _settings(part), depth)


def _inside(many: Any, depth: int) -> str:
    if isinstance(many, dict):
        pairs = ((_shown(k, depth + 1), _shown(v, depth + 1)) for k, v in many.items())
        return ", ".join(f"{key}: {value}" for key, value in sorted(pairs))
    each = [_shown(value, depth + 1) for value in many]
    return ", ".join(sorted(each) if isinstance(many, (set, frozenset)) else each)


def _function(function: types.FunctionType, depth: int) -> str:
    """By its name and what it was made with; where the name is not its own, by its code too."""
    settings: dict[str, Any] = dict(vars(function))
    settings.pop("__wrapped__", None)  # what it wraps is among the variables it looks at
    settings |= {f"default {i}": value for i, value in enumerate(function.__defaults__ or ())}
    settings |= function.__kwdefaults__ or {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            settings[name] = cell.cell_contents
        except ValueError:
            raise _unshowable(function, f"it looks at {name}, which is not there yet") from None
    if settings.get("__class__") is not None:  # a method that says super()
        del settings["__class__"]
    # A lambda or a local function: others may have the same name.
    code = _code(function.__code__) if "<" in function.__qualname__ else ""
    told = _listed(settings, depth) if settings else ""
    return f"{function.__module__}.{function.__qualname__}{code}{told}"


def _code(code: types.CodeType) -> str:
    constants = sorted(
        _code(each)
        if isinstance(each, types.CodeType)
        # The order of a set changes from process to process.
        else repr(sorted(map(repr, each)) if isinstance(each, frozenset) else each)
        for each in code.co_consts
    )
    about = (code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars)
    return f"[{hashlib.sha256(repr(about).encode(errors='backslashreplace')).hexdigest()}]"


def _class(kind: type, depth: int) -> str:
    """A class by its name; a local one, as others may have it too, by what is in it."""
    name = kind.__qualname__
    if kind.__module__.partition(".")[0] != "hereish":
        name = f"{kind.__module__}.{name}"
    if "<" not in name:
        return name
    made = {
        attribute: value
        for attribute, value in vars(kind).items()
        if attribute == "__call__" or not attribute.startswith("_")
        if not isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType))
    }
    return name + _listed(made, depth)


def _class_settings(part: Any) -> dict[str, Any]:
    """What a class says for all its objects, as in `uniforms = 2`; ours are known by their name."""
    own = {f.name for f in fields(part)} if is_dataclass(part) else set()
    return {
        name: value
        for kind in reversed(type(part).__mro__)
        if kind.__module__.partition(".")[0] not in ("hereish", "builtins", "typing", "abc")
        for name, value in vars(kind).items()
        if not (name.startswith("__") or name in own | _MACHINERY)
        if not (callable(value) or hasattr(value, "__get__"))
    }


def _settings(part: Any) -> dict[str, Any]:
    """What an object was made with."""
    classes = [kind for kind in type(part).__mro__ if kind is not object]
    if is_dataclass(part):
        given = {f.name: getattr(part, f.name) for f in fields(part) if f.repr or f.init}
        # What is neither given nor shown was computed from the rest, and so is what is cached.
        computed = {f.name for f in fields(part)} | {
            name
            for kind in classes
            for name, value in vars(kind).items()
            if isinstance(value, functools.cached_property)
        }
        others = getattr(part, "__dict__", {}).items()
        return given | {name: value for name, value in others if name not in computed}
    slots = {
        slot
        for kind in classes
        for slot in np.atleast_1d(np.array(vars(kind).get("__slots__", ()), dtype=object)).tolist()
    }
    known = hasattr(part, "__dict__") or slots
    if not known or not all(kind.__flags__ & _PYTHON_CLASS for kind in classes):
        raise _unshowable(part, "it is not made of attributes")
    settings = dict(getattr(part, "__dict__", {}))
    return settings | {
        slot: getattr(part, slot)
        for slot in sorted(slots - {"__dict__", "__weakref__"})
        if hasattr(part, slot)
    }


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
