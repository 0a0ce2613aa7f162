# SPDX-License-Identifier: Apache-2.0
"""Finds settings and replaced functions that may change numbers, so that readers know that they are not JAX's defaults.

Settings of JAX come from variables, from a conftest.py, from a plugin or from `sitecustomize`. So they are read from
JAX itself and compared with those of a fresh process, rather than with a list of known names. Functions of
NumPy and JAX that somebody replaced are found by the file of their code. A run line keeps both, and the
head of a run and the statement of its level name them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

from meshmark.core import loaded
from meshmark.core.privacy import redact
from meshmark.records.run_definition import MOST_AROUND

HARMLESS = (
    *("jax_num_cpu_devices", "jax_platform", "jax_cpu_collectives_implementation", "jax_cpu_get_"),
    *(
        "jax_enable_compilation_cache",
        "jax_compilation_cache_",
        "jax_persistent_cache_",
        "jax_raise_persistent",
    ),
    *(
        "jax_log",
        "jax_dump",
        "jax_explain",
        "jax_traceback",
        "jax_tracer_error",
        "jax_debug_log",
        "jax_pprint",
    ),
    *("jax_include_", "jax_hlo_source", "jax_source_url", "jax_send_traceback", "jax_compiler_detailed"),
    *(
        "jax_captured_constants_",
        "jax_distributed",
        "jax_mtls",
        "jax_cross_host",
        "jax_check_proxy",
        "jax_enable_rec",
    ),
    *(
        "jax_cuda_visible",
        "jax_rocm_visible",
        "jax_oneapi_visible",
        "jax_array_garbage",
        "jax_check_tracer_leaks",
    ),
    "jax_mosaic_unzip_debug_locations",
)
"""Beginnings of the names of settings that choose devices, log or cache, and leave numbers and programs alone.
The suite sets some of them itself."""

DEFAULTS = {"0.10.2": "66f612a3cb7586cf", "0.11.2": "2bc086152b946567", "0.12.0.1": "664da2f699fc7b6f"}
"""A digest of the default settings by release, which spares a child process; other releases are asked."""

PATCHED = "replaced"
"""How the description of a replaced function begins."""

ALIASES = {
    *("jax.ds dslice", "jax.lax.random_gamma_grad up_and_broadcast", "jax.nn.hard_swish hard_silu"),
    *("jax.nn.swish silu", "jax._src.core.gensym <lambda>"),
    *("jax._src.api.generate_key_paths tree_leaves_with_path", "jax._src.tree_util.export wrapper"),
    "jax._src.tree_util.generate_key_paths tree_leaves_with_path",
    *(f"jax._src.{module}.zip safe_zip" for module in ("api", "array", "core", "dispatch", "pjit", "stages")),
    *(f"jax._src.{module}.map safe_map" for module in ("api", "core", "dispatch", "pjit", "stages")),
    *("jax._src.interpreters.pxla.map safe_map", "jax._src.interpreters.pxla.zip safe_zip"),
    *("numpy.abs absolute", "numpy.mod remainder", "numpy.conj conjugate", "numpy.true_divide divide"),
    *("numpy.pow power", "numpy.concat concatenate", "numpy.permute_dims transpose"),
    *("numpy.bitwise_not invert", "numpy.bitwise_invert invert", "numpy.bitwise_left_shift left_shift"),
    *("numpy.bitwise_right_shift right_shift", "numpy.atan2 arctan2"),
    *(f"numpy.a{function} arc{function}" for function in ("cos", "cosh", "sin", "sinh", "tan", "tanh")),
}
"""The functions that JAX 0.10 to 0.12 and NumPy 2.4 and 2.5 give another name than their own. A fresh process is asked
about others."""

LOOKED_AT = (
    *("time", "statistics", "random", "scipy.stats"),
    *("numpy", "numpy.linalg", "numpy.random", "numpy.fft"),
    *(
        "jax",
        "jax.lax",
        "jax.numpy",
        "jax.sharding",
        "jax.stages",
        "jax.tree",
        "jax.tree_util",
        "jax.random",
        "jax.nn",
    ),
    *(
        "jax._src.api",
        "jax._src.core",
        "jax._src.compiler",
        "jax._src.dispatch",
        "jax._src.pjit",
        "jax._src.stages",
    ),
    *(
        "jax._src.tree_util",
        "jax._src.interpreters.pxla",
        "jax._src.array",
        "jaxlib._jax",
        "jaxlib.xla_extension",
    ),
)
"""The modules whose functions and methods make, run and read programs. Releases lack some of them."""

JUDGING = ("meshmark.core", "meshmark.judge", "meshmark.levels", "meshmark.records")
"""The rooms that compare and count."""

DECIDING = (*JUDGING, "meshmark.operations", "meshmark.timing")
"""These, and the rooms that say what is right and how long it took."""

TESTS_OWN = ("_pytest.fixtures",)
"""Where the functions come from that pytest puts in the place of fixtures."""

OWN_PACKAGES = {"numpy", "jax", "jaxlib", "ml_dtypes", "meshmark"}
"""The packages whose classes are looked at."""

GENERATED = {
    *("__init__", "__new__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__"),
    *("__lt__", "__le__", "__gt__", "__ge__"),
}
"""Methods that dataclasses and named tuples make of texts."""

OWN_TYPES = {
    "meshmark",
    "builtins",
    "collections",
    "numpy",
    "jax",
    "jaxlib",
    "functools",
    "types",
    "typing",
    "nanobind",
    "enum",
    "abc",
    "ml_dtypes",
    "scipy",
}
"""The packages whose types may be called in the namespaces of NumPy and JAX."""

PYTHONS = {"builtins", "collections", "functools", "types", "typing", "enum", "abc"}
"""Those of them that are Python's own."""


PLAIN = frozenset({type(None), bool, int, float, str, bytes, tuple, list, dict, set, frozenset})
"""The types whose values run no function."""


def unusual_settings() -> dict[str, str]:
    """The settings of JAX that are not the default ones, and the functions of NumPy and JAX that something else has
    replaced, by name; {} in a process with JAX's defaults. Texts have a bounded length and name no path."""
    found = {**changed_settings(_settings()), **replaced_functions()}
    return {name[:100]: redact(value)[:200] for name, value in sorted(found.items())[:MOST_AROUND]}


def replaced_functions() -> dict[str, str]:
    """The functions and methods of NumPy and JAX that something else has replaced, by name, with a description."""

    homes, clean = _homes("jax", "jaxlib", "numpy", "scipy", "ml_dtypes"), dict[int, type]()
    found = {
        f"{place}.{name}": f"{PATCHED} by a function of {where}"
        for place in LOOKED_AT
        if place in sys.modules
        for name, where in replaced(sys.modules[place], homes, clean=clean)
    }
    renamed = {entry for entry in _renamed(LOOKED_AT) - ALIASES if entry.split(" ")[0] not in found}
    if renamed:
        renamed -= _default_aliases(
            tuple(sorted({entry.split(" ")[0].rpartition(".")[0] for entry in renamed}))
        )
    return found | {
        name: f"{PATCHED} by {own}" for name, own in (entry.split(" ") for entry in sorted(renamed))
    }


def _renamed(places: tuple[str, ...]) -> set[str]:
    """ "place.name own" of each public function that stands in a module under another name than its own."""
    return {
        f"{place}.{name} {own}"
        for place in places
        if place in sys.modules
        for name, value in vars(sys.modules[place]).items()
        if not name.startswith("_") and type(value).__module__ not in ("typing", "types")
        if callable(value) and not isinstance(value, (type, GenericAlias, MethodType))
        if isinstance(own := getattr(value, "__name__", None), str) and own and own != name
    }


@cache
def _default_aliases(places: tuple[str, ...]) -> set[str]:
    """`_renamed` in a fresh process."""
    code = (
        f"import importlib; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r});"
        f" import jax; [importlib.import_module(name) for name in {places!r}];"
        " from meshmark.devices import surroundings;"
        f" print(json.dumps(sorted(surroundings._renamed({places!r}))))"
    )
    return set(_ask_fresh_process(code, "the names of functions"))


def changed_settings(own: Mapping[str, str]) -> dict[str, str]:
    """The settings among these that differ from those of a fresh process without variables."""
    import jax

    if digest_settings(own) == DEFAULTS.get(jax.__version__):
        return {}
    default = _default_settings()
    return {name: value for name, value in own.items() if default.get(name) != value}


def judge_replaced(rooms: tuple[str, ...] = JUDGING) -> Iterator[tuple[str, str]]:
    """(name, why) of the functions and methods of the rooms that decide which are not their own: somebody replaced
    them. Those of the given rooms are compared with their sources too, because Python may have loaded another compiled
    file."""
    homes, clean = _homes("jax", "jaxlib", "numpy", "ml_dtypes", "meshmark"), dict[int, type]()
    for name, module in _modules(DECIDING):
        for one, where in replaced(module, homes, private=True, clean=clean):
            if where not in TESTS_OWN:
                yield f"{name}.{one}", f"replaced by a function of {where}"
    for name, operation in getattr(sys.modules.get("meshmark.operations"), "OPERATIONS", {}).items():
        for one, value in vars(operation).items():
            if any(loaded.codes_of(value)):
                yield f"the operation {name}", f"its {one} was replaced"
    for name, module in _modules(rooms):
        yield from ((f"{name}.{one}", why) for one, why in loaded.unlike_imports(module))
    yield from loaded.unlike_source(rooms)


def _modules(rooms: tuple[str, ...]) -> list[tuple[str, ModuleType]]:
    """The loaded modules of these packages, by name."""
    within = tuple(f"{room}." for room in rooms)
    return [(name, module) for name, module in list(sys.modules.items()) if f"{name}.".startswith(within)]


def _homes(*packages: str) -> frozenset[Path]:
    return _directories(tuple(str(sys.modules[name].__file__) for name in packages if name in sys.modules))


@cache
def _directories(files: tuple[str, ...]) -> frozenset[Path]:
    """The directories of these files, and that of Python's own library. The same object each time: `_inside` finds its
    answers by it, and comparing paths costs more than the check."""
    return frozenset(Path(file).resolve().parent for file in (*files, contextlib.__file__))


def replaced(
    module: ModuleType, homes: frozenset[Path], private: bool = False, clean: dict[int, type] | None = None
) -> Iterator[tuple[str, str]]:
    """(name, file) of the functions of a module, and of the methods of the classes in it, that come from files outside
    of these directories, or from packages that are installed inside them. A function from outside that wraps one from
    inside is listed.

    clean: by id, the classes that were looked at before and have no such method, since many modules import the same
    class; this call adds to it."""
    clean = {} if clean is None else clean
    for name, value in list(vars(module).items()):
        if type(value) in PLAIN or name.startswith("__" if private else "_"):
            continue
        if isinstance(value, ModuleType):
            continue
        if isinstance(value, type):
            if id(value) not in clean and value.__module__.partition(".")[0] in OWN_PACKAGES:
                found = list(_methods_from_outside(value, homes))
                yield from ((f"{name}.{own}", file) for own, file in found)
                if not found:
                    clean[id(value)] = value
        elif file := _foreign(value, homes) or _borrowed(name, value):
            yield name, file
        elif isinstance(value, MethodWrapperType):
            yield name, type(value.__self__).__name__
        elif callable(value) and not _is_of_known_type(value):
            yield name, type(value).__module__


def _methods_from_outside(of: type, homes: frozenset[Path]) -> Iterator[tuple[str, str]]:
    for name, method in list(vars(of).items()):
        if type(method) not in PLAIN and (file := _foreign(method, homes, name in GENERATED)):
            yield name, file


def _foreign(value: object, homes: frozenset[Path], generated: bool = False) -> str:
    """The name of the file outside of these directories that a function comes from; "" if there is none.
    generated: whether Python may have made the function from a text."""
    for code in loaded.codes_of(value):
        file = code.co_filename
        if not _inside(file, homes) and not (generated and file.startswith("<")):
            return Path(file).name
    return ""


def _borrowed(name: str, value: object) -> str:
    """The module of a function of Python's own that stands under another name than its own; "" for anything else. JAX
    and NumPy import such functions under their own names."""
    if name.startswith("_") or not isinstance(value, (FunctionType, BuiltinFunctionType)):
        return ""
    home = getattr(value, "__module__", None) or "builtins"
    return home if home.partition(".")[0] not in OWN_TYPES - PYTHONS and value.__name__ != name else ""


def _is_of_known_type(value: object) -> bool:
    of = type(value).__module__.partition(".")[0]
    return of in OWN_TYPES or of.startswith("_cython")  # the functions of numpy.random


@cache
def _inside(file: str, homes: frozenset[Path]) -> bool:
    """Whether a file lies in one of these directories, and not among the packages that are installed inside of it."""
    if file.startswith("<frozen importlib"):
        return True
    path = Path(file).resolve()
    above = next((home for home in homes if home in path.parents), None)
    return above is not None and "site-packages" not in path.relative_to(above).parts


def digest_settings(settings: Mapping[str, str]) -> str:
    """A digest of settings: SHA-256, the first 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _settings() -> dict[str, str]:
    """The settings of JAX in this process, without the harmless ones."""
    import jax

    return {
        name: value if isinstance(value, str) else repr(value)
        for name, value in sorted(jax.config.values.items())
        if not name.startswith(HARMLESS)
    }


@cache
def _default_settings() -> dict[str, str]:
    """The settings of a fresh process without variables, without files of the working directory, and without the user's
    customizations."""
    code = (
        "import jax;"
        " print(json.dumps({n: v if isinstance(v, str) else repr(v) for n, v in jax.config.values.items()}))"
    )
    found: dict[str, str] = _ask_fresh_process(code, "the default settings")
    return found


def _ask_fresh_process(code: str, what: str) -> Any:
    """The JSON that some code prints in a process without variables and customizations; RuntimeError if it fails."""
    home = str(Path(sys.modules["jax"].__file__ or "").resolve().parent.parent)
    command = [sys.executable, "-I", "-c", f"import json, sys; sys.path.append({home!r}); {code}"]
    done = subprocess.run(command, capture_output=True, text=True, env={}, timeout=120)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{what} of JAX can't be read: {last[:200]}")
    return json.loads(lines[-1])
