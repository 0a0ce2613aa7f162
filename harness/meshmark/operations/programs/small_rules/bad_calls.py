# SPDX-License-Identifier: Apache-2.0
"""Small rules of calls that JAX must refuse, over meshes: collectives, regions, jit, arrays from parts, specs, meshes.

The calls are those whose refusal no other case executed (`python -m tests.studies.reach`). Each refusal is asked for by
a few words of its reason, which are the same in JAX 0.10, 0.11 and 0.12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import refused

Calls = dict[str, tuple[str, Callable[[], Any]]]
"""By what is wrong with the call: words of the reason, and the call."""


def refuse_all(calls: Calls) -> None:
    """RuntimeError for the first call that is not refused for its reason."""
    for what, (words, call) in calls.items():
        refused(what, words, call)


def _bad_collectives(line, grid):
    """Collectives with groups, pairs, sizes and kinds that they can't have."""
    n = line.size
    x = placed(line, np.arange(2 * n, dtype=np.float32), "d")

    def inside(body: Callable[[Any], Any], check: bool = False) -> Callable[[], Any]:
        region = jax.shard_map(body, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=check)
        return lambda: jax.jit(region).lower(x)

    twice = [[0, 0], *([k] for k in range(1, n))]
    apart = [[0], [1]]
    rows = jnp.ones((2, 2))
    refuse_all(
        {
            "a maximum over groups with a device twice": (
                "exactly once",
                inside(lambda b: lax.pmax(b, "d", axis_index_groups=twice)),
            ),
            "a sum over groups with a device twice": (
                "exactly once",
                inside(lambda b: lax.psum(b, "d", axis_index_groups=twice)),
            ),
            "a gather to no kind of array": (
                "unexpected `to` value",
                inside(lambda b: lax.all_gather(b, "d", to="nowhere")),
            ),
            "a cast to no kind of array": (
                "unexpected `to` value",
                inside(lambda b: lax.pcast(b, "d", to="nowhere"), check=True),
            ),
            "a cast to varying of what varies": (
                "Unsupported pcast",
                inside(lambda b: lax.pcast(b, "d", to="varying"), check=True),
            ),
            "a cast to reduced of what varies": (
                "Unsupported pcast",
                inside(lambda b: lax.pcast(b, "d", to="reduced"), check=True),
            ),
            "the size of no axis": ("unbound axis name", inside(lambda b: b * lax.axis_size("nowhere"))),
            "a sum outside of every region": ("unbound axis name", lambda: lax.psum(x, "d")),
            "a gather over groups of a batch": (
                "axis_index_groups not supported in vmap",
                lambda: jax.vmap(lambda v: lax.all_gather(v, "i", axis_index_groups=apart), axis_name="i")(
                    rows
                ),
            ),
            "a scattered sum over groups of a batch": (
                "axis_index_groups not supported in vmap",
                lambda: jax.vmap(lambda v: lax.psum_scatter(v, "i", axis_index_groups=apart), axis_name="i")(
                    rows
                ),
            ),
        }
    )
    if n == 1:
        return
    refuse_all(
        {
            "a shuffle to one device": (
                "does not represent a permutation",
                inside(lambda b: lax.pshuffle(b, "d", [0] * n)),
            ),
            "an uneven sum that is scattered": (
                "must be divisible by",
                inside(lambda b: lax.psum_scatter(jnp.ones(n + 1), "d", tiled=True)),
            ),
            "a sum scattered over another number of rows": (
                "must match shard count",
                inside(lambda b: lax.psum_scatter(jnp.ones((n + 1, 2)), "d")),
            ),
            "an exchange of another number of rows": (
                "to equal x.shape",
                inside(lambda b: lax.all_to_all(jnp.ones((n + 1, 2)), "d", 0, 1)),
            ),
        }
    )


def _bad_regions(line, grid):
    """shard_map with a function, mesh, specs or axes that it can't have."""
    n = line.size
    x = placed(line, np.arange(2 * n, dtype=np.float32), "d")

    def region(body: Any = lambda b: b, **options: Any) -> Callable[[], Any]:
        given = {"mesh": line, "in_specs": P("d"), "out_specs": P("d")} | options
        return lambda: jax.shard_map(body, **given)(x)

    calls: Calls = {
        "a number in place of a function": ("requires a callable", region(3)),
        "devices in place of a mesh": ("requires a `jax.sharding.Mesh`", region(mesh=line.devices)),
        "no mesh at all": (
            "context mesh cannot be empty",
            lambda: jax.shard_map(lambda b: b, in_specs=P("d"), out_specs=P("d"))(x),
        ),
        "a list of manual axes": ("should be of type `frozenset`", region(axis_names=["d"])),
        "an unknown manual axis": ("to be a subset of", region(axis_names={"z"})),
        "a text in place of specs": ("must be a pytree of", region(in_specs="d")),
        "no spec of the result": ("pytree structure error", region(out_specs=None)),
        "a spec for two results of one": ("pytree structure error", region(out_specs=(P("d"), P("d")))),
        "specs of two arguments for one": ("pytree structure error", region(in_specs=(P("d"), P("d")))),
        "one spec for two results": ("pytree structure error", region(lambda b: (b, b), out_specs=(P("d"),))),
        "a number along an axis": ("too long to be compatible", region(lambda b: b.sum(), check_vma=False)),
        "a result of a longer spec": ("too long to be compatible", region(out_specs=P("d", None, None))),
        "a spec over an axis that is not manual": (
            "marked as manual",
            region(mesh=grid, in_specs=P("x"), out_specs=P("x"), axis_names={"y"}),
        ),
        "a batch over an axis of the specs": (
            "cannot appear in shard_map in_specs",
            lambda: jax.vmap(
                jax.shard_map(lambda b: b, mesh=grid, in_specs=P("x"), out_specs=P("x")), spmd_axis_name="x"
            )(jnp.ones((2, 2 * n))),
        ),
        "device_put to one device in an eager region": (
            "device_put with explicit device",
            region(lambda b: jax.device_put(b, line.devices.ravel()[0])),
        ),
    }
    refuse_all(calls)
    with jax.set_mesh(grid):
        refuse_all({"another mesh than that of the context": ("should match the mesh passed", region())})


def _bad_calls_of_jit(line, grid):
    """jit with options, shardings and arguments that it can't have."""
    n = line.size
    host = np.arange(2 * n, dtype=np.float32)
    whole, cut = NamedSharding(line, P()), NamedSharding(line, P("d"))

    def same(v: Any) -> Any:
        return v

    def call(argument: Any = host, body: Any = same, **options: Any) -> Callable[[], Any]:
        return lambda: jax.jit(body, **options)(argument)

    def inner(v: Any) -> Any:
        return jax.jit(same, compiler_options={"xla_embed_ir_in_executable": True})(v)

    calls: Calls = {
        "a sharding and a device": (
            "in_shardings should not be specified",
            call(in_shardings=whole, device=line.devices.ravel()[0]),
        ),
        "an argument by keyword beside in_shardings": (
            "does not support kwargs",
            lambda: jax.jit(same, in_shardings=whole)(v=host),
        ),
        "a text as an argument": ("is not a valid JAX type|Error interpreting argument", call("text")),
        "an object as an argument": ("is not a valid JAX type|Error interpreting argument", call(object())),
        "an integer of 41 bits": ("OverflowError", call(2**40)),
        "compiler options of an inner jit": ("can only be passed to top-level", call(body=inner)),
        "an option that no compiler has": (
            "No such compile option",
            call(compiler_options={"xla_no_such_option": 1}),
        ),
        "a constraint to a text": (
            "PartitionSpec",
            call(body=lambda v: lax.with_sharding_constraint(v, "d")),
        ),
        "a text as in_shardings": ("PartitionSpec", call(in_shardings="d")),
        "a text as out_shardings": ("PartitionSpec", call(out_shardings="d")),
        "an argument that lies as it likes": (
            "Unconstrained dims are not allowed",
            call(in_shardings=NamedSharding(line, P(P.UNCONSTRAINED))),
        ),
        "shardings of two arguments for one": ("tree prefix", call(in_shardings=(cut, cut))),
        "a static argument past the last": ("only accepts 1 positional", call(static_argnums=5)),
        "a donated argument past the last": ("only accepts 1 positional", call(donate_argnums=5)),
        "a static argument of no name": ("Function does not take these args", call(static_argnames="w")),
        "an argument both static and donated": (
            "cannot intersect",
            lambda: jax.jit(lambda v, k: v, static_argnums=1, donate_argnums=1)(host, 3),
        ),
    }
    kinds = {m.kind for m in line.devices.flat[0].addressable_memories()}
    if {"device", "pinned_host"} <= kinds:
        there = jax.device_put(host, cut)
        far = NamedSharding(line, P("d"), memory_kind="pinned_host")
        calls["an argument from another memory"] = ("Memory kinds", call(there, in_shardings=far))
    if n > 1:
        turned = Mesh(line.devices.ravel()[::-1], ("d",))
        other = jax.device_put(host, NamedSharding(turned, P("d")))
        calls["arrays along two dimensions of one axis"] = (
            "duplicate",
            lambda: jax.jit(jax.vmap(jax.jit(same, in_shardings=cut), spmd_axis_name="d"))(
                jnp.ones((2 * n, 2 * n))
            ),
        )
        calls["arrays over devices in two orders"] = (
            "incompatible devices",
            lambda: jax.jit(lambda a, b: a + b)(jax.device_put(host, cut), other),
        )
    refuse_all(calls)


def _bad_parts(line, grid):
    """Arrays from parts of another shape, rank, dtype, number or place; and uses of a cut array that need a whole."""
    n = line.size
    host = np.arange(2 * n, dtype=np.float32)
    there, shape = NamedSharding(line, P("d")), host.shape
    x = jax.device_put(host, there)
    parts = [jax.device_put(host[2 * k : 2 * k + 2], d) for k, d in enumerate(line.devices.ravel())]

    def local(data: np.ndarray, of: tuple[int, ...] | None = None) -> Callable[[], Any]:
        return lambda: jax.make_array_from_process_local_data(there, data, of)

    def made(part: Callable[[Any], Any], of: tuple[int, ...] = shape) -> Callable[[], Any]:
        return lambda: jax.make_array_from_callback(of, there, part)

    def joined(arrays: Any, of: tuple[int, ...] = shape) -> Callable[[], Any]:
        return lambda: jax.make_array_from_single_device_arrays(of, there, arrays)

    spec: Any = P("d")
    calls: Calls = {
        "parts that are longer": ("Expected shard shape", made(lambda i: np.ones(3, np.float32))),
        "parts of another rank": ("Expected shard shape", made(lambda i: host[i][None])),
        "a spec in place of a sharding": (
            "should be an instance of",
            lambda: jax.make_array_from_callback(shape, spec, lambda i: host[i]),
        ),
        "parts of a traced array": (
            "cannot be called within a traced context",
            lambda: jax.jit(lambda v: jax.make_array_from_callback(shape, there, lambda i: v[i]))(host),
        ),
        "parts of a larger array": ("Expected shard shape", joined(parts, (4 * n,))),
        "NumPy arrays as parts": ("Unsupported type", joined([np.asarray(part) for part in parts])),
        "an array in place of its parts": ("must be a list or tuple", joined(x)),
        "the length of a number": ("unsized object", lambda: len(x[0])),
        "the elements of a number": ("iteration over a 0-d array", lambda: list(x[0])),
        "the number of an array": ("array of size 1", x.item),
        "an array as a float": ("Only scalar arrays", lambda: float(x)),
        "an array as an index of a list": ("scalar", lambda: [0][x]),
        "the truth of an array": ("ambiguous", lambda: bool(x)),
        "a text to a place": ("is not a valid JAX type", lambda: jax.device_put("a", there)),
        "two arrays to a list of one place": ("tree prefix", lambda: jax.device_put([host, host], [there])),
        "an array to a text": ("only accepts", lambda: jax.device_put(host, "cpu")),
    }
    if jax.process_count() == 1:
        calls |= {
            "data of a process for a longer array": ("global_shape", local(host, (4 * n,))),
            "data of a process for a shorter array": ("global_shape", local(host, (n,))),
            "data of a process for another rank": ("global_shape", local(host, (2 * n, 1))),
            "data of a process for more columns": ("global_shape", local(np.ones((n, 3)), (n, 6))),
        }
    if n > 1:
        calls |= {
            "uneven data of a process": ("evenly divide|divisible", local(np.ones((n + 1, 3)))),
            "whole arrays as parts": ("Expected shard shape", made(lambda i: host)),
            "parts of an uneven array": (
                "evenly divide|divisible",
                made(lambda i: np.ones(2 * n + 1)[i], (2 * n + 1,)),
            ),
            "parts of two dtypes": (
                "matching dtypes",
                made(lambda i: host[i].astype(np.int32) if i[0].start else host[i]),
            ),
            "too few parts": ("per-device arrays", joined(parts[1:])),
            "parts of one device twice": ("distinct devices", joined([*parts[:-1], parts[0]])),
            "a cut array as a part": ("one shard each", joined([*parts[:-1], x])),
            "a cut array to another library": ("singular device|unsharded", lambda: np.from_dlpack(x)),
            "the address of a cut array": ("unsharded", x.unsafe_buffer_pointer),
        }
    refuse_all(calls)


def _bad_specs(line, grid):
    """Specs and shardings with axes, parts and kinds that they can't have."""
    n, typed = line.size, explicit(line)
    abstract = AbstractMesh((n,), ("d",))

    def over(mesh: Any, *parts: Any, **kinds: Any) -> Callable[[], Any]:
        return lambda: NamedSharding(mesh, P(*parts, **kinds))

    calls: Calls = {
        "an axis twice": ("duplicate", over(line, "d", "d")),
        "a number as an axis": ("not found in mesh", over(line, 3)),
        "an axis of another mesh": ("not found in mesh", over(line, "z")),
        "no axis that is unreduced": ("cannot contain None", lambda: P(unreduced={None})),
        "no axis that is reduced": ("cannot contain None", lambda: P(reduced={None})),
        "a text as the unreduced axes": ("`frozenset` or `set`", lambda: P(unreduced="x")),
        "an axis unreduced and reduced": ("cannot overlap", lambda: P(unreduced={"x"}, reduced={"x"})),
        "an axis unreduced and of a part": ("cannot overlap", lambda: P("x", unreduced={"x"})),
        "an axis reduced and of a part": ("cannot overlap", lambda: P("x", reduced={"x"})),
        "an automatic axis that is unreduced": ("`Explicit`", over(line, unreduced={"d"})),
        "an automatic axis that is reduced": ("`Explicit`", over(line, reduced={"d"})),
        "an unreduced axis of another mesh": ("not found in", over(typed, unreduced={"z"})),
        "a reduced axis of another mesh": ("not found in", over(typed, reduced={"z"})),
        "an explicit dimension that lies as it likes": ("UNCONSTRAINED", over(typed, P.UNCONSTRAINED)),
        "the devices of an abstract mesh": ("not implemented", lambda: over(abstract, "d")().device_set),
        "a kind of spec": ("prohibited", lambda: type("Kind", (P,), {})),
        "a memory that no device has": (
            "memory kind",
            lambda: NamedSharding(line, P("d"), memory_kind="nowhere"),
        ),
        "axes in a part of a part": ("nested tuple", over(line, (("d",),))),
    }
    if n > 1:
        calls["a part of an uneven dimension"] = (
            "evenly divide|divisible",
            lambda: over(line, "d")().shard_shape((n + 1,)),
        )
    refuse_all(calls)


def _bad_meshes(line, grid):
    """Meshes with names, types and sizes that they can't have, and contexts in the wrong place."""
    n, devices = line.size, line.devices.ravel()
    host = np.arange(2 * n, dtype=np.float32)

    def within(enter: Callable[[], Any]) -> Callable[[], Any]:
        def body(v: Any) -> Any:
            enter()
            return v

        return lambda: jax.jit(body)(host)

    refuse_all(
        {
            "a number as axis sizes": ("is not iterable", lambda: jax.make_mesh(n, ("d",))),
            "two names of one dimension": ("to equal the length", lambda: Mesh(devices, ("a", "b"))),
            "no name of a dimension": ("cannot be None", lambda: Mesh(devices, (None,))),
            "a text as the type of an axis": (
                "must be of type `jax.sharding.AxisType`",
                lambda: Mesh(devices, ("d",), axis_types=("auto",)),
            ),
            "two types of one axis": (
                "should match the number of axis_types",
                lambda: Mesh(devices, ("d",), axis_types=(AxisType.Auto,) * 2),
            ),
            "devices as the mesh of the context": (
                "Expected mesh of type `jax.sharding.Mesh`",
                lambda: jax.set_mesh(devices),
            ),
            "a mesh as the abstract mesh of the context": (
                "Expected mesh of type `jax.sharding.AbstractMesh`",
                lambda: jax.sharding.use_abstract_mesh(line),
            ),
            "a mesh of the context from inside of jit": (
                "can only be used outside of `jax.jit`",
                within(lambda: jax.set_mesh(line)),
            ),
            "the mesh of the context inside of jit": (
                "can only be used outside of `jax.jit`",
                within(jax.sharding.get_mesh),
            ),
            "more devices than there are": (
                "must be >= the product",
                lambda: jax.make_mesh((64 * jax.device_count(),), ("d",)),
            ),
            "a mesh of other devices than there are": (
                "must equal the product",
                lambda: mesh_utils.create_device_mesh((n + 1,), devices=list(devices)),
            ),
        }
    )


def _shardings_refused(line, grid):
    """Shardings that do not go together: a sum of two that share a prefix, a result that varies over one of two axes,
    a committed argument that lies elsewhere than jit was told."""
    n = line.size
    if n == 1 or 1 in grid.devices.shape:
        return
    host = np.ones(2 * n, np.float32)
    with jax.set_mesh(explicit(grid)):
        both, one, other = (jax.device_put(host, spec) for spec in (P(("x", "y")), P("x"), P("y")))
        for what, a, b in (
            ("over x and over both", one, both),
            ("over both and over x", both, one),
            ("over x and over y", one, other),
            ("over y and over both", other, both),
        ):
            for name, call in (("a sum", jnp.add), ("a product", jnp.multiply), ("a choice", _choice)):
                refused(
                    f"{name} of arrays {what}",
                    "[Ss]harding|ambiguous|Incompatible",
                    lambda call=call, a=a, b=b: jax.jit(call)(a, b),
                )
        left, right = (
            jax.device_put(np.ones((2 * n, 2 * n), np.float32), P(*spec))
            for spec in ((None, ("x", "y")), (("x", "y"), None))
        )
        for kept in ({"x"}, {"y"}):
            place = P(None, None, unreduced=kept)
            refused(
                f"a product over x and y that is left unreduced over {kept}",
                "unreduced",
                lambda place=place: jax.jit(
                    lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=place)
                ).trace(left, right),
            )
    for axis in ("x", "y"):
        for out in (P(), P({"x": "y", "y": "x"}[axis])):
            region = jax.shard_map(lambda b: b * 2, mesh=grid, in_specs=P(axis), out_specs=out)
            refused(
                f"a result over {axis} that is said to be over {out}",
                "out_specs|replicat|vary",
                lambda region=region: jax.jit(region)(host),
            )
    whole, cut, across = (NamedSharding(line, spec) for spec in (P(), P("d"), P(None, "d")))
    square = np.ones((n, n), np.float32)
    for lies, told in ((whole, cut), (whole, across), (cut, across), (cut, whole), (across, cut)):
        x = jax.device_put(square, lies)
        refused(
            f"a committed array over {lies.spec} where jit was told {told.spec}",
            "[Ss]harding",
            lambda told=told, x=x: jax.jit(lambda v: v * 2, in_shardings=told)(x),
        )


def _choice(a: Any, b: Any) -> Any:
    return jnp.where(a > b, a, b)


RULES_OF_BAD_CALLS: dict[str, Callable[..., None]] = {
    "bad_collectives": _bad_collectives,
    "bad_regions": _bad_regions,
    "bad_calls_of_jit": _bad_calls_of_jit,
    "bad_parts": _bad_parts,
    "bad_specs": _bad_specs,
    "bad_meshes": _bad_meshes,
    "shardings_refused": _shardings_refused,
}
