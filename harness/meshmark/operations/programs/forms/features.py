# SPDX-License-Identifier: Apache-2.0
"""Features of JAX around one sharded program: unreduced sums, mutable arrays, layouts, checks inside a program,
kernels, programs without the compiler, and vmap of a shard_map that closes over the mapped array.

The program is that of `programs.forms.base`: f(x) = x * s(x). If values cannot show a feature, its case raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.base import ProgramForm, at, explicit, local, over, whole
from meshmark.operations.programs.forms.options import wrong

# Unreduced and reduced types.


def blocks(m, a, x):
    """The blocks of x over axis a, stacked: [blocks, rows per block, columns], and ones[blocks] to sum them."""
    stack = lax.reshape(x, (m.shape[a], x.shape[0] // m.shape[a], x.shape[1]), out_sharding=P(a))
    return stack, jnp.ones(m.shape[a], x.dtype, out_sharding=P(a))


def from_sum(mesh, a, x, total):
    """f(x), where total(m, stack, ones) sums the blocks in a program over Explicit axes. Raises Missing if the release
    has no unreduced types."""
    if "unreduced" not in dir(P()):
        raise Missing("this release has no unreduced types")
    m = explicit(mesh)

    def f(y):
        stack, ones = blocks(m, a, y)
        return lax.reshape(stack * reshard(total(m, stack, ones), P()), y.shape, out_sharding=P(a))

    with jax.set_mesh(m):
        y = jax.jit(f)(jax.device_put(x, at(m, a)))
    return jax.device_put(y, at(mesh, a))


def in_equal_parts(stack, number):
    """The stack [blocks, rows, columns], with its rows repeated if they have no `number` equal parts: `reshard` needs
    equal parts."""
    return stack if stack.shape[1] % number == 0 else jnp.concatenate([stack] * number, axis=1)


def first_rows(x, number):
    """The first `number` rows of x, without what `in_equal_parts` added."""
    return x if x.shape[0] == number else reshard(x, P())[:number]


def _unreduced(mesh, a, x):
    """Each device keeps its own sum until a reshard adds them."""

    def total(m, stack, ones):
        return jnp.einsum("b,bij->ij", ones, stack, out_sharding=P(unreduced={a}))

    return from_sum(mesh, a, x, total)


def _unreduced_scattered(mesh, a, x):
    """The sums are added and scattered in one step."""

    def total(m, stack, ones):
        rows = stack.shape[1]
        stack = in_equal_parts(stack, m.shape[a])
        own = jnp.einsum("b,bij->ij", ones, stack, out_sharding=P(unreduced={a}))
        return first_rows(reshard(own, P(a)), rows)

    return from_sum(mesh, a, x, total)


def _unreduced_mixed(mesh, a, x):
    """Unreduced over one axis and sharded over another, then sharded over both (as in xla#40034)."""

    def total(m, stack, ones):
        first, rows = m.axis_names[0], stack.shape[1]
        stack = reshard(in_equal_parts(stack, m.shape[a]), P(a, None, first))
        own = jnp.einsum("b,bij->ij", ones, stack, out_sharding=P(None, first, unreduced={a}))
        return first_rows(reshard(own, P(a, first)), rows)

    return from_sum(mesh, a, x, total)


def _unreduced_added(mesh, a, x):
    """Two unreduced sums are added before any communication."""

    def total(m, stack, ones):
        place = P(unreduced={a})
        one = jnp.einsum("b,bij->ij", ones, stack, out_sharding=place)
        return one + jnp.einsum("b,bij->ij", 0 * ones, stack, out_sharding=place)

    return from_sum(mesh, a, x, total)


def _reduced(mesh, a, x):
    """The gradient of an argument of reduced type is unreduced: each device has the part of its block."""

    def total(m, stack, ones):
        rows, columns = stack.shape[1:]
        weights = reshard(jnp.ones((rows, columns), stack.dtype), P(reduced={a}))
        gradient = jax.grad(lambda w: jnp.einsum("ij,bij->b", w, stack, out_sharding=P(a)).sum())(weights)
        kind = jax.typeof(gradient).sharding.spec
        wrong(set(kind.unreduced) != {a}, f"the gradient of a reduced argument has the type {kind}")
        return gradient

    return from_sum(mesh, a, x, total)


# Mutable arrays.


def mutable(x):
    """A mutable array with the initial value x. Raises Missing if the release has none."""
    for name in ("new_ref", "array_ref"):
        if hasattr(jax, name):
            return getattr(jax, name)(x)
    raise Missing("this release has no jax.new_ref")


def _mutable(mesh, a, x):
    """A mutable array inside a program: set, added to by rows, read."""

    def f(y):
        kept = mutable(jnp.zeros_like(y))
        kept[...] = y - 1
        kept[1:3] += 1
        kept[0] += 1
        kept[3:] += 1
        return whole(mesh, a)(kept[...])

    return jax.jit(f, out_shardings=at(mesh, a))(x)


def _mutable_argument(mesh, a, x):
    """A program changes a mutable array that is its argument. The array keeps its sharding."""
    kept = mutable(jax.device_put(x, at(mesh, a)))

    def f(r):
        r[...] = lax.with_sharding_constraint(whole(mesh, a)(r[...]), at(mesh, a))

    jax.jit(f)(kept)
    return kept[...]


def _mutable_block(mesh, a, x):
    """A mutable array for each block of a shard_map."""

    def f(block):
        kept = mutable(block)
        kept[...] = local(a)(kept[...])
        return kept[...]

    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(a), out_specs=P(a)))(x)


# Layouts.


def _layout(mesh, a, x):
    """An input and a result in column-major order."""
    from jax.experimental.layout import Format, Layout

    order = Format(Layout(major_to_minor=(1, 0)), at(mesh, a))
    turned = jax.device_put(x, order)
    found = tuple(turned.format.layout.major_to_minor)
    wrong(found != (1, 0), f"an array put with the layout (1, 0) has the layout {found}")
    y = jax.jit(over(mesh, a), in_shardings=order, out_shardings=order)(turned)
    return jax.device_put(y, Format(Layout(major_to_minor=(0, 1)), at(mesh, a)))


def _layout_chosen(mesh, a, x):
    """The compiler chooses the layouts of input and result."""
    from jax.experimental.layout import Format, Layout

    chosen = Format(Layout.AUTO, at(mesh, a))
    f = jax.jit(whole(mesh, a), in_shardings=chosen, out_shardings=chosen)
    compiled = f.lower(jax.ShapeDtypeStruct(x.shape, x.dtype)).compile()
    y = compiled(jax.device_put(x, compiled.input_formats[0][0]))
    return jax.device_put(y, at(mesh, a))


# Checks, and programs without the compiler.


def _checked(mesh, a, x):
    """checkify with a check that holds for a result of shard_map (jax#23946)."""
    from jax.experimental import checkify

    def f(y):
        found = over(mesh, a)(y)
        checkify.check(jnp.all(found == whole(mesh, a)(y)), "the two differ")
        return found

    error, y = jax.jit(checkify.checkify(f))(x)
    error.throw()
    return jax.device_put(y, at(mesh, a))


def _check_fails(mesh, a, x):
    """checkify with a check that fails in one row, on one device, and with an index past the end."""
    from jax.experimental import checkify

    def f(y, row):
        found = whole(mesh, a)(y)
        checkify.check(jnp.all(jnp.arange(y.shape[0]) != row), "row {r} is there", r=row)
        return found

    run = jax.jit(checkify.checkify(f), out_shardings=(None, at(mesh, a)))
    error, y = run(x, x.shape[0] - 1)
    wrong(
        f"row {x.shape[0] - 1} is there" not in str(error.get()), f"the check that fails says {error.get()}"
    )
    error, y = run(x, x.shape[0])
    wrong(error.get() is not None, f"the check that holds says {error.get()}")
    index = jax.jit(checkify.checkify(lambda y, i: y[i], errors=checkify.index_checks))
    wrong(index(x, x.shape[0])[0].get() is None, "an index past the end passes index_checks")
    wrong(index(x, 1)[0].get() is not None, "an index inside fails index_checks")
    return y


def _without_jit(mesh, a, x):
    """`jax.disable_jit`: jit and shard_map run eagerly."""
    with jax.disable_jit():
        y = jax.jit(over(mesh, a))(x)
    return jax.device_put(y, at(mesh, a))


def _debug_nans(mesh, a, x):
    """`jax.debug_nans` passes a program without NaN and raises FloatingPointError for one with NaN."""
    with jax.debug_nans(True):
        y = jax.jit(over(mesh, a))(x)
        try:
            jax.block_until_ready(jax.jit(lambda b: jnp.log(b - b.max() + 3 * (b == b.max()) - 1))(x))
        except FloatingPointError:
            return y
    raise RuntimeError("jax.debug_nans says nothing of a NaN on some devices")


def _abstract_mesh(mesh, a, x):
    """A shard_map over an abstract mesh. The devices come from the input."""
    f = jax.shard_map(local(a), mesh=mesh.abstract_mesh, in_specs=P(a), out_specs=P(a))
    return jax.jit(f)(jax.device_put(x, at(mesh, a)))


def _kernel(mesh, a, x):
    """An interpreted Pallas kernel on each block."""
    from jax.experimental import pallas

    def copy(given, made):
        made[...] = given[...]

    def f(block):
        kind = jax.ShapeDtypeStruct(block.shape, block.dtype)
        return local(a)(pallas.pallas_call(copy, out_shape=kind, interpret=True)(block))

    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P(a), out_specs=P(a), check_vma=False))(x)


# Closed-over values.


def of_closed(mesh, a, x, **options):
    """f(x), after a vmap over the columns of x of a shard_map that closes over the column and returns it."""

    def same(column):
        return jax.shard_map(lambda: column, mesh=mesh, in_specs=(), out_specs=P())()

    y = jax.jit(jax.vmap(same, in_axes=1, out_axes=1, **options))(x)
    wrong(y.shape != x.shape, f"the vmap of a function that gives {x.shape} back gives {y.shape}")
    return jax.jit(whole(mesh, a), out_shardings=at(mesh, a))(y)


def _vmap_closed(mesh, a, x):
    return of_closed(mesh, a, x)


def _vmap_spmd_closed(mesh, a, x):
    """The same, with the batch sharded over the first axis (jax#17874)."""
    return of_closed(mesh, a, x, spmd_axis_name=mesh.axis_names[0])


def _scanned_auto_axes(mesh, a, x):
    """The gradient of a loop whose step is a function in `auto_axes` that closes over the argument (jax#33029)."""
    m = explicit(mesh)

    def loss(p, y):
        step = jax.sharding.auto_axes(lambda c: c * p, out_sharding=P(a))
        return lax.scan(lambda c, _: (step(c), None), y, length=3)[0].sum()

    with jax.set_mesh(m):
        there = jax.device_put(x, at(m, a))
        excess = jax.jit(jax.grad(loss))(1.0, there) - 3 * there.sum()
    y = jax.jit(whole(mesh, a), out_shardings=at(mesh, a))(x)
    return y + jax.device_put(excess, NamedSharding(mesh, P()))


FEATURES: dict[str, Callable[..., Any]] = {
    "unreduced": _unreduced,
    "unreduced_scattered": _unreduced_scattered,
    "unreduced_mixed": _unreduced_mixed,
    "unreduced_added": _unreduced_added,
    "reduced": _reduced,
    "mutable": _mutable,
    "mutable_argument": _mutable_argument,
    "mutable_block": _mutable_block,
    "layout": _layout,
    "layout_chosen": _layout_chosen,
    "checked": _checked,
    "check_fails": _check_fails,
    "without_jit": _without_jit,
    "debug_nans": _debug_nans,
    "abstract_mesh": _abstract_mesh,
    "kernel": _kernel,
    "vmap_closed": _vmap_closed,
    "vmap_spmd_closed": _vmap_spmd_closed,
    "scanned_auto_axes": _scanned_auto_axes,
}
"""Each function takes the mesh, its last axis, and the input sharded over that axis."""


class ProgramFeature(ProgramForm):
    """One sharded program with each feature that changes how JAX sees its values: types, layouts, checks, closures."""

    name = "program_feature"
    forms = FEATURES
    two_axes = ("unreduced_mixed", "vmap_spmd_closed")

    @staticmethod
    def host(mesh, x, *, form, axis):
        return FEATURES[form](mesh, axis, jax.device_put(x, at(mesh, axis)))
