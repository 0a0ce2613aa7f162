# SPDX-License-Identifier: Apache-2.0
"""Small rules of conditions that JAX's own tests of typed arrays name: contexts that change the mesh inside of a
program, axes whose type a call changes, meshes of mixed axes, and cut arrays beside those of no mesh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, auto_axes, explicit_axes, reshard, use_abstract_mesh
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import explicit
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.small_rules.arrays import cube
from meshmark.operations.programs.small_rules.comparing import expect, refused
from meshmark.operations.programs.small_rules.hosts import on_each_device
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers
from meshmark.operations.programs.small_rules.typed import lies, whole_spec

Cases = dict[str, tuple[Callable[..., Any], np.ndarray, tuple[Any, ...]]]
"""By name: a function, its answer, and the spec of its type."""


def check(cases: Cases, given: tuple[Any, ...], ways: dict[str, Any] | None = None) -> None:
    """RuntimeError for the first function of the arguments that has another value or type."""
    for name, (call, right, spec) in cases.items():
        for way, run in (ways or WAYS).items():
            lies(run(call)(*given), right, spec, f"{name}, {way}")


def _types_of_axes_changed_inside(line, grid):
    """A program that makes Explicit axes Auto, or Auto ones Explicit, for some lines: types, values and gradients."""
    m, n = explicit(grid), 2 * grid.size
    host = numbers(n, n) % 5 - 2
    square, slope = host @ host.T, 2 * host.sum(0) + 0 * host
    for chosen in (("x", "y"), ("x",), ("y",)):
        seen: list[Any] = []

        def inside(v: Any, chosen: Any = chosen, seen: Any = seen) -> Any:
            twice = v * 2
            with use_abstract_mesh(m.abstract_mesh.update_axis_types(dict.fromkeys(chosen, AxisType.Auto))):
                left = P(*(None if a in chosen else a for a in ("x", "y")))
                here = reshard(twice, left)
                seen.append(tuple(jax.typeof(here).sharding.spec))
                kept = P(left[0], None)
                product = jnp.einsum("ij,kj->ik", here, here, out_sharding=None if len(chosen) > 1 else kept)
            return reshard(product, P("x", None)) / 4

        with jax.set_mesh(m):
            x = jax.device_put(host, P("x", "y"))
            what = f"a product where {' and '.join(chosen)} are Auto"
            lies(jax.jit(inside)(x), square, ("x", None), what)
            right = tuple(None if a in chosen else a for a in ("x", "y"))
            expect(seen[0], right, f"the spec inside of {what}")
            back = jax.jit(jax.grad(lambda v, f=inside: f(v).sum()))(x)
            lies(back, slope, ("x", "y"), f"the gradient of {what}")
    with jax.set_mesh(m):

        def returned(v: Any) -> Any:
            with use_abstract_mesh(
                m.abstract_mesh.update_axis_types(dict.fromkeys(("x", "y"), AxisType.Auto))
            ):
                return reshard(v, P(None, None))

        found = jax.jit(returned)(jax.device_put(host, P("x", "y")))
        on_each_device(found, host, "an array that is returned over Auto axes")
        expect(set(found.sharding.mesh.axis_types), {AxisType.Auto}, "the types of its axes")
    with jax.set_mesh(grid):

        def typed(v: Any) -> Any:
            axes = dict.fromkeys(("x", "y"), AxisType.Explicit)
            with use_abstract_mesh(grid.abstract_mesh.update_axis_types(axes)):
                here = reshard(v, P(None, "y")) * 2
                wrong(tuple(jax.typeof(here).sharding.spec) != (None, "y"), "the spec inside is lost")
                here = here - here.sum(0)
            return reshard(here, P(None, None))

        x = jax.device_put(host, NamedSharding(grid, P("x", "y")))
        on_each_device(jax.jit(typed)(x), 2 * host - 2 * host.sum(0), "what is Explicit inside of a program")


def _check_names(grid: Any, given: Any) -> None:
    """RuntimeError for the first place by other names, on a mesh of other sizes, that is wrong inside of a program."""
    m, n = explicit(grid), grid.size
    host, by = numbers(2 * n, 2 * n), numbers(2 * n, 2 * n) % 7 - 3
    for sizes, specs in given:
        other = m.abstract_mesh.update(axis_sizes=sizes, axis_names=("a", "b"))
        for spec in specs:

            def inside(v: Any, other: Any = other, spec: Any = spec) -> Any:
                with use_abstract_mesh(other):
                    return reshard(v, spec) * 3 - 1

            with jax.set_mesh(m):
                x = jax.device_put(host, P("x", "y"))
                what = f"an array that lies by {spec} of {dict(other.shape)} inside of a program"
                found = jax.jit(inside)(x)
                lies(found, 3 * host - 1, tuple(spec), what)
                devices = np.array(m.devices).reshape(sizes)
                there = NamedSharding(explicit(Mesh(devices, ("a", "b"))), spec)
                expect(found.sharding.is_equivalent_to(there, 2), True, f"whether {what} lies there")
                if spec == P("a", "b"):
                    weights = jax.device_put(by, P("y"))
                    back = jax.jit(jax.grad(lambda v, w, f=inside: (reshard(f(v), P("y", None)) * w).sum()))(
                        x, weights
                    )
                    lies(back, 3 * by, ("x", "y"), f"the gradient of {what}")


def _names_of_axes_changed_inside(line, grid):
    """A program that names and counts the axes of its mesh anew for some lines: values, places and gradients."""
    m, n = explicit(grid), grid.size
    host = numbers(2 * n, 2 * n)
    rows, columns = (P(("a", "b"), None), P("a", "b")), (P("b", "a"), P(None, ("b", "a")))
    _check_names(
        grid, (((n, 1), rows), ((1, n), (rows[0], columns[0])), (grid.devices.shape, rows + columns))
    )
    with jax.set_mesh(m):
        x = jax.device_put(host, P("x", "y"))
        names = m.abstract_mesh.update(axis_names=("a", "b"))
        with use_abstract_mesh(names):
            expect(jax.sharding.get_abstract_mesh().axis_names, ("a", "b"), "the names of a context")
            expect(tuple(jax.typeof(x).sharding.spec), ("x", "y"), "the spec of an array under other names")
            made = jnp.arange(2 * n, dtype=jnp.float32)
            expect(made.sharding.mesh.axis_names, ("a", "b"), "the axes of a range under other names")
            on_each_device(made, np.arange(2 * n, dtype=np.float32), "a range under other names")
            lies(reshard(x, P("b", "a")), host, ("b", "a"), "an array that is put by other names")
        expect(jax.sharding.get_abstract_mesh().axis_names, ("x", "y"), "the names after a context")
        if n > 1:
            less = jax.sharding.AbstractMesh((2 * n,), ("x",), (AxisType.Explicit,))

            def grown() -> Any:
                with use_abstract_mesh(less):
                    return jnp.arange(4 * n)

            refused("a context of more devices", "cannot change the size", grown)


def _columns_regrouped_by_other_names(line, grid):
    """Columns that lie over all devices, by new names and sizes of the axes, inside of a program."""
    n = grid.size
    places = P("a", "b"), P("b", "a"), P(None, ("b", "a"))
    _check_names(grid, (((1, n), places[::2]), ((n, 1), places[1:])))  # XLA ends the process where n is 6


def _no_mesh_inside_of_a_context(line, grid):
    """set_mesh(None) inside of set_mesh: arrays of one device, types without a mesh, and the mesh again after it."""
    m = explicit(line)
    host = numbers(2 * line.size, 3)
    seen: list[Any] = []

    @jax.jit
    def twice(v: Any) -> Any:
        found = v * 2
        seen.append((jax.typeof(found).sharding.mesh.axis_names, tuple(jax.typeof(found).sharding.spec)))
        return found

    with jax.set_mesh(m):
        x = jax.device_put(host, P("d"))
        lies(twice(x), 2 * host, ("d", None), "a program before")
        try:
            context = jax.set_mesh(None)
        except (AttributeError, TypeError, ValueError) as error:
            raise Missing("this release has no set_mesh(None)") from error
        with context:
            expect(jax.sharding.get_abstract_mesh().empty, True, "whether a context without a mesh is empty")
            expect(jax.sharding.get_mesh().empty, True, "whether its mesh is empty")
            one = jnp.asarray(host)
            expect(len(one.sharding.device_set), 1, "the devices of an array that is made there")
            found = twice(one)
            expect(np.asarray(found), 2 * host, "a program of that array")
            expect(len(found.sharding.device_set), 1, "the devices of its result")
            expect(tuple(jax.typeof(x).sharding.spec), ("d", None), "the type of an earlier array")
            on_each_device(twice(x), 2 * host, "a program of an earlier array")
        expect(jax.sharding.get_abstract_mesh().axis_names, ("d",), "the axes after the context")
        lies(twice(x), 2 * host, ("d", None), "a program after the context")
        lies(jnp.asarray(host), host, (None, None), "an array that is made after the context")
        moved = jax.device_put(x, jax.sharding.SingleDeviceSharding(line.devices.ravel()[-1]))
        expect(
            jax.typeof(moved).sharding.mesh.empty,
            True,
            "whether the type of an array of one device has no mesh",
        )
        expect(np.asarray(moved), host, "an array of the last device")
    expect(seen[:2], [(("d",), ("d", None)), ((), (None, None))], "the types inside of the programs")


def _axes_typed_by_a_call(line, grid):
    """auto_axes and explicit_axes that get their place at the call, without a context, in batches and in loops."""
    m, n = explicit(grid), grid.size
    host = numbers(2 * n, 2 * n)
    place = NamedSharding(m, P("y", "x"))
    x = jax.device_put(host, NamedSharding(m, P("x", "y")))
    turned = host[::-1] * 2

    def flipped(v: Any) -> Any:
        return v[::-1] * 2

    for way, run in WAYS.items():
        found = run(auto_axes(flipped, out_sharding=place))(x)
        lies(found, turned, ("y", "x"), f"auto_axes without a context, {way}")
        some = auto_axes(lambda v: v * 2, axes="x", out_sharding=place)
        lies(run(some)(x), 2 * host, ("y", "x"), f"auto_axes of x without a context, {way}")
    with jax.set_mesh(m):
        for spec in (P("y", "x"), P(("x", "y"), None), P()):
            for name, given in (("an array", x), ("a NumPy array", host)):
                late = auto_axes(flipped)
                for way, run in WAYS.items():
                    what = f"auto_axes of {name} that is told {spec} at the call, {way}"
                    lies(
                        run(lambda v, s=spec, f=late: f(v, out_sharding=s))(given), turned, tuple(spec), what
                    )
        rows = jax.device_put(host, P(("x", "y")))
        part = auto_axes(lambda v: jnp.where(v > 0, v[::-1], 3), out_sharding=P())
        found = jax.jit(jax.vmap(part))(rows)
        right = np.where(host > 0, host[:, ::-1], np.float32(3))
        lies(found, right, (("x", "y"), None), "a batch of auto_axes over cut rows")

        def looped(w: Any, v: Any) -> Any:
            step = auto_axes(lambda w, c: w * c[::-1], out_sharding=P("x"))
            return lax.scan(lambda c, _: (step(w, c), ()), v, None, length=3)[0]

        column = jax.device_put(host[:, 0], P("x"))
        two = jax.device_put(np.float32(2), P())
        lies(jax.jit(looped)(two, column), 8 * host[::-1, 0], ("x",), "auto_axes in a loop")
        by, along = jax.jit(jax.grad(lambda w, v: (looped(w, v) * column).sum(), argnums=(0, 1)))(two, column)
        expect(
            np.asarray(by),
            12 * (host[::-1, 0] * host[:, 0]).sum(),
            "the gradient by a number that auto_axes takes",
        )
        lies(along, 8 * host[::-1, 0], ("x",), "the gradient through auto_axes in a loop")
    with jax.set_mesh(grid):
        late = explicit_axes(lambda v: v * 2)
        found = late(host, in_sharding=P("x", "y"))
        there = NamedSharding(grid, P("x", "y"))
        on_each_device(found, 2 * host, "explicit_axes that is told at the call")
        expect(
            found.sharding.is_equivalent_to(there, 2), True, "whether explicit_axes puts its argument there"
        )

        @explicit_axes(in_sharding=(P("y"), P("y")))
        def product(a: Any, b: Any) -> Any:
            return reshard(a, P()) * b

        found = jax.jit(jax.vmap(product, spmd_axis_name="x"))(host, host + 1)
        on_each_device(found, host * (host + 1), "explicit_axes in a named batch")


def _splits_of_dimensions_over_several_axes(line, grid):
    """A reshape that splits a dimension over two and three axes between them, or joins them again, and its gradient."""
    for mesh in (grid, cube(line)):
        m, names, sizes = explicit(mesh), mesh.axis_names, mesh.devices.shape
        last = (*sizes[:-1], 2 * sizes[-1])
        flat = 2 * m.size
        ends: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
            (last, names),
            ((m.size, 2), (names, None)),
            ((sizes[0], flat // sizes[0]), (names[0], names[1:] if len(names) > 2 else names[1])),
            ((*sizes, 2), (*names, None)),
        ]
        if len(names) > 2:
            ends.append(((sizes[0] * sizes[1], 2 * sizes[2]), (names[:2], names[2])))
        host, by = numbers(flat), numbers(flat)[::-1].copy() % 7 - 2
        exact = min(sizes) > 1  # an axis of one device may stay with either dimension
        with jax.set_mesh(m):
            for shape, spec in ends:
                for start, at_first, end, there in (
                    ((flat,), (names,), shape, spec),
                    (shape, spec, (flat,), (names,)),
                ):
                    x = jax.device_put(host.reshape(start), P(*at_first))
                    w = jax.device_put(by.reshape(end), P(*there))
                    what = f"a reshape of {start} by {P(*at_first)} to {end} over {dict(m.shape)}"

                    def both(v: Any, w: Any, end: Any = end) -> Any:
                        found, back = jax.vjp(lambda v: jnp.reshape(v, end), v)
                        return found, back(w)[0]

                    if not exact:
                        found = jax.jit(lambda v, end=end: jnp.reshape(v, end))(x)
                        on_each_device(found, host.reshape(end), what)
                        continue
                    found, back = jax.jit(both)(x, w)
                    lies(found, host.reshape(end), there, what)
                    lies(back, by.reshape(start), at_first, f"the gradient of {what}")


def _meshes_of_mixed_axes(line, grid):
    """A mesh of an Explicit and an Auto axis: the type names the Explicit one, and the array lies over both."""
    for first, second in (("x", "y"), ("y", "x")):
        if grid.shape[first] == 1 < grid.size:
            continue  # one_device_axes_beside_auto_ones has it
        kinds = tuple(AxisType.Explicit if a == first else AxisType.Auto for a in ("x", "y"))
        m = Mesh(grid.devices, ("x", "y"), axis_types=kinds)
        n = 2 * m.size
        host = numbers(n, n)
        where = f"with {first} Explicit"
        with jax.set_mesh(m):
            x = jax.device_put(host, P((first, second), None))
            expect(
                whole_spec(jax.typeof(x).sharding.spec, 2), (first, None), f"the type of an array, {where}"
            )
            on_each_device(x, host, f"an array over both axes, {where}")
            cases: Cases = {
                "twice": (lambda v: v * 2, 2 * host, (first, None)),
                "sums of columns": (lambda v: v.sum(0), host.sum(0), (None,)),
                "sums of rows": (lambda v: v.sum(1), host.sum(1), (first,)),
                "a product": (lambda v: v @ reshard(v, P()).T, host @ host.T, (first, None)),
                "a transposition": (lambda v: v.T - 1, host.T - 1, (None, first)),
                "a range": (
                    lambda v, a=first, n=n: lax.broadcasted_iota(
                        np.float32, (n, 3), 0, out_sharding=P(a, None)
                    ),
                    np.broadcast_to(np.arange(n, dtype=np.float32)[:, None], (n, 3)),
                    (first, None),
                ),
                "a reshard": (lambda v, a=first: reshard(v, P(None, a)), host, (None, first)),
                "a gradient": (jax.grad(lambda v: (v * v[:, ::-1]).sum()), 2 * host[:, ::-1], (first, None)),
            }
            check(cases, (x,))
            held = jax.jit(lambda v, b=second: lax.with_sharding_constraint(v * 3, P(b)))(
                jax.device_put(host, P(first))
            )
            lies(held, 3 * host, (first, None), f"an array that is held to {second}, {where}")
            there = NamedSharding(m, P((first, second)))
            expect(held.sharding.is_equivalent_to(there, 2), True, f"whether it lies over both axes, {where}")
            typed = explicit_axes(
                lambda v: v * 2 - v.sum(1, keepdims=True), axes=second, in_sharding=P(first, second)
            )
            right = 2 * host - host.sum(1, keepdims=True)
            found = jax.jit(typed)(x)
            lies(found, right, (first, None), f"explicit_axes of the Auto axis, {where}")


def _one_device_axes_beside_auto_ones(line, grid):
    """An Explicit axis of one device beside an Auto axis: the types inside of programs, and of what they give."""
    devices = line.devices.reshape(1, -1)
    m = Mesh(devices, ("one", "all"), axis_types=(AxisType.Explicit, AxisType.Auto))
    host = numbers(2 * m.size, 3)
    with jax.set_mesh(m):
        made = jnp.full(host.shape, 3.0, out_sharding=P("one", None))
        lies(made, 0 * host + 3, ("one", None), "an array that is made by the one device")
        for spec in (P("one", None), P(("one", "all"), None)):
            x = jax.device_put(host, spec)
            lies(x, host, ("one", None), f"an array by {spec}")
            seen: list[Any] = []

            def twice(v: Any, seen: Any = seen) -> Any:
                found = v * 2
                seen.append(whole_spec(jax.typeof(found).sharding.spec, 2))
                return found

            found = jax.jit(twice)(x)
            expect(seen, [("one", None)], f"the type inside of a program of an array by {spec}")
            on_each_device(found, 2 * host, f"twice an array by {spec}")
            # JAX breaks what follows where the array lies over the Auto axis too.
            for way, run in WAYS.items():
                lies(run(lambda v: v * 2)(x), 2 * host, ("one", None), f"twice an array by {spec}, {way}")


def _arrays_of_no_mesh_beside_cut_ones(line, grid):
    """NumPy arrays, and arrays made before the mesh was set, beside cut ones: products, sums, gradients, einsums."""
    early = jnp.asarray(numbers(4, 4) % 5 - 2)
    m = explicit(line)
    n = 2 * m.size
    host, w = numbers(n, 4) % 7 - 3, numbers(4, 4) % 5 - 2
    by = np.ones((n, 4), np.float32)
    one = numbers(4)
    for name, other in (("a NumPy array", w), ("an array made before", early)):
        with jax.set_mesh(m):
            x, z = jax.device_put(host, P("d")), jax.device_put(host.T, P(None, "d"))

            def by_both(a: Any, b: Any) -> Any:
                return jax.grad(lambda a, b: jnp.dot(a, b).sum(), argnums=(0, 1))(a, b)

            lies(jax.jit(jnp.dot)(x, other), host @ w, ("d", None), f"a product with {name}")
            lies(jax.jit(jnp.dot)(other, z), w @ host.T, (None, "d"), f"a product of {name}")
            lies(jnp.dot(x, other), host @ w, ("d", None), f"a product with {name}, without jit")
            cut, whole = jax.jit(by_both)(x, other)
            lies(cut, by @ w.T, ("d", None), f"the gradient by cut rows of a product with {name}")
            lies(whole, host.T @ by, (), f"the gradient by {name}")
            whole, cut = jax.jit(by_both)(other, z)
            lies(whole, by.T @ host, (), f"the gradient by {name}, in front")
            lies(cut, w.T @ by.T, (None, "d"), f"the gradient by cut columns of a product of {name}")
    with jax.set_mesh(m):
        x, v, p = jax.device_put(host, P("d")), jax.device_put(one, P()), jax.device_put(host, P())
        two = jax.device_put(numbers(2, 4), P())

        def written(p: Any, two: Any, x: Any, v: Any) -> Any:
            return ((lax.dynamic_update_slice(p, two, (0, 0)) + x) * v).sum()

        slopes = jax.jit(jax.grad(written, argnums=(0, 1, 2)))(p, two, x, v)
        right = np.broadcast_to(one, (n, 4)).copy()
        lies(slopes[2], right, ("d", None), "the gradient by cut rows that are added")
        lies(slopes[1], right[:2], (), "the gradient by whole rows that are written")
        right[:2] = 0
        lies(slopes[0], right, (), "the gradient by whole rows that are written over")
        a, b = jax.device_put(host[:, :3], P("d")), jax.device_put(numbers(n, 2) % 5 - 2, P("d"))
        end = np.einsum("bi,bj,bk->ijk", host[:, :3], host[:, 2:], numbers(n, 2) % 5 - 2)
        cases: Cases = {
            "an einsum of three": (
                lambda a, x, b: jnp.einsum("bi,bj,bk->ijk", a, x[:, 2:], b, out_sharding=P()),
                end,
                (),
            ),
            "an einsum of three into columns": (
                lambda a, x, b: jnp.einsum(
                    "ni,nb,nk->bik", a, reshard(x @ x.T, P(None, "d")), b, out_sharding=P("d")
                ),
                np.einsum("ni,nb,nk->bik", host[:, :3], host @ host.T, numbers(n, 2) % 5 - 2),
                ("d", None, None),
            ),
        }
        with_whole = {k: v for k, v in cases.items() if k == "an einsum of three"}
        check(with_whole, (a, x, b))


RULES_OF_TESTED_TYPES: dict[str, Callable[..., None]] = {
    "types_of_axes_changed_inside": _types_of_axes_changed_inside,
    "names_of_axes_changed_inside": _names_of_axes_changed_inside,
    "columns_regrouped_by_other_names": _columns_regrouped_by_other_names,
    "no_mesh_inside_of_a_context": _no_mesh_inside_of_a_context,
    "axes_typed_by_a_call": _axes_typed_by_a_call,
    "splits_of_dimensions_over_several_axes": _splits_of_dimensions_over_several_axes,
    "meshes_of_mixed_axes": _meshes_of_mixed_axes,
    "one_device_axes_beside_auto_ones": _one_device_axes_beside_auto_ones,
    "arrays_of_no_mesh_beside_cut_ones": _arrays_of_no_mesh_beside_cut_ones,
}
