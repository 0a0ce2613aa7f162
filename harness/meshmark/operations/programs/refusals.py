# SPDX-License-Identifier: Apache-2.0
"""Refusals: calls that must raise an error whose message names the cause. A result instead of the error is a fail,
another error is an error, and a crash is a crash."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, auto_axes
from jax.sharding import PartitionSpec as P

from meshmark.core.meshes import MeshShape, preferred
from meshmark.operations.base import Argument, Operation, Plan, Request, Result, Variant
from meshmark.operations.programs.forms.base import explicit


def placed(mesh, x, *spec):
    """The array on the mesh, sharded by the spec."""
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def mapped(function, mesh, in_specs, out_specs, **options):
    """The jitted shard_map of a function of blocks."""
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options))


def _longer_spec(mesh, x, a):
    return placed(mesh, x, a, None, None)


def _unknown_axis(mesh, x, a):
    return placed(mesh, x, "nowhere")


def _repeated_axis(mesh, x, a):
    return placed(mesh, x, a, a)


def _indivisible_put(mesh, x, a):
    return placed(mesh, x[:-1], a)


def _indivisible_result(mesh, x, a):
    return jax.jit(lambda y: y[:-1], out_shardings=NamedSharding(mesh, P(a)))(x)


def _indivisible_input(mesh, x, a):
    return jax.jit(lambda y: y, in_shardings=NamedSharding(mesh, P(a)))(x[:-1])


def _unbound_axis(mesh, x, a):
    return mapped(lambda y: lax.psum(y, "nowhere"), mesh, P(a), P(a))(x)


def _unbound_outside(mesh, x, a):
    return jax.jit(lambda y: lax.psum(y, a))(x)


def _indivisible_block(mesh, x, a):
    return mapped(lambda y: y, mesh, P(a), P(a))(x[:-1])


def _longer_in_spec(mesh, x, a):
    return mapped(lambda y: y, mesh, P(a, None, None), P(a))(x)


def _too_few_specs(mesh, x, a):
    return mapped(lambda y, z: y, mesh, (P(a), P(a), P(a)), P(a))(x, x)


def _varying_output(mesh, x, a):
    return mapped(lambda y: y, mesh, P(a), P())(x)


def _duplicate_sources(mesh, x, a):
    return mapped(lambda y: lax.ppermute(y, a, [(0, 1), (0, 0)]), mesh, P(a), P(a))(x)


def _duplicate_targets(mesh, x, a):
    return mapped(lambda y: lax.ppermute(y, a, [(0, 1), (1, 1)]), mesh, P(a), P(a))(x)


def _uneven_scatter(mesh, x, a):
    def scatter(y):
        return lax.psum_scatter(y[:, : mesh.shape[a] + 1], a, scatter_dimension=1, tiled=True)

    return mapped(scatter, mesh, P(a), P(None, a))(x)


def _uneven_exchange(mesh, x, a):
    def exchange(y):
        return lax.all_to_all(y[:, : mesh.shape[a] + 1], a, 1, 0, tiled=True)

    return mapped(exchange, mesh, P(a), P(None, a))(x)


def _uneven_groups(mesh, x, a):
    n = mesh.shape[a]
    groups = [[0], list(range(1, n))] if n > 2 else [[0, 1], []]  # one device per group would be even
    return mapped(lambda y: lax.all_gather(y, a, axis_index_groups=groups), mesh, P(a), P(a))(x)


def _axis_mapped_twice(mesh, x, a):
    inner = jax.shard_map(lambda y: y, mesh=mesh, in_specs=P(a), out_specs=P(a))
    return mapped(inner, mesh, P(a), P(a))(x)


def _changing_carry(mesh, x, a):
    def body(y):
        return lax.scan(lambda c, _: (c + y, None), jnp.zeros(y.shape, y.dtype), None, length=2)[0]

    return mapped(body, mesh, P(a), P(a))(x)


def _other_mesh(mesh, x, a):
    turned = Mesh(np.roll(mesh.devices, 1), mesh.axis_names)
    return jax.jit(jnp.add)(placed(mesh, x, a), placed(turned, x, a))


def _smaller_mesh(mesh, x, a):
    half = Mesh(mesh.devices.ravel()[: mesh.size // 2], (a,))
    return jnp.add(placed(mesh, x, a), placed(half, x, a))


def _donated(mesh, x, a):
    given = placed(mesh, x, a)
    jax.block_until_ready(jax.jit(lambda y: y + 1, donate_argnums=0)(given))
    return given + 1


def _deleted(mesh, x, a):
    given = placed(mesh, x, a)
    given.delete()
    return np.asarray(given)


def _unknown_constraint(mesh, x, a):
    return jax.jit(lambda y: lax.with_sharding_constraint(y, NamedSharding(mesh, P(None, None, a))))(x)


def _mismatched_sum(mesh, x, a):
    m = explicit(mesh)
    with jax.set_mesh(m):
        return jax.jit(jnp.add)(placed(m, x, a), placed(m, x, mesh.axis_names[0]))


def _ambiguous_product(mesh, x, a):
    m = explicit(mesh)
    with jax.set_mesh(m):
        return jax.jit(jnp.matmul)(placed(m, x, None, a), placed(m, x.T, a, None))


def _ambiguous_reshape(mesh, x, a):
    m = explicit(mesh)
    with jax.set_mesh(m):
        return jax.jit(lambda y: y.reshape(-1))(placed(m, x, None, a))


def _ambiguous_gather(mesh, x, a):
    m = explicit(mesh)
    with jax.set_mesh(m):
        return jax.jit(lambda y: y[np.array([3, 1, 0])])(placed(m, x, a))


def _uneven_slice(mesh, x, a):
    m = explicit(mesh)
    with jax.set_mesh(m):
        return jax.jit(lambda y: y[1:])(placed(m, x, a))


def _scan_over_sharded(mesh, x, a):
    m = explicit(mesh)
    with jax.set_mesh(m):
        return jax.jit(lambda y: lax.scan(lambda c, row: (c, row), 0.0, y)[1])(placed(m, x, a))


def _no_out_sharding(mesh, x, a):
    m = explicit(mesh)
    with jax.set_mesh(m):
        return jax.jit(auto_axes(lambda y: y * 2))(placed(m, x, a))


def _too_many_devices(mesh, x, a):
    return jax.make_mesh((len(jax.devices()) + 1,), ("x",))


def _wrong_shards(mesh, x, a):
    parts = [jax.device_put(x[:1], d) for d in mesh.devices.ravel()]
    return jax.make_array_from_single_device_arrays(x.shape, NamedSharding(mesh, P(a)), parts)


def _donated_twice(mesh, x, a):
    given = placed(mesh, x, a)
    return jax.jit(lambda y, z: (y + z, y - z), donate_argnums=(0, 1))(given, given)


def _constraint_axis(mesh, x, a):
    return jax.jit(lambda y: lax.with_sharding_constraint(y, NamedSharding(mesh, P("nowhere"))))(x)


def _manual_axis(mesh, x, a):
    return mapped(lambda y: y, mesh, P(a), P(a), axis_names={"nowhere"})(x)


def _compiled_sharding(mesh, x, a):
    given = placed(mesh, x, a)
    return jax.jit(lambda y: y + 1).lower(given).compile()(placed(mesh, x, None, a))


def _compiled_shape(mesh, x, a):
    given = placed(mesh, x, a)
    return jax.jit(lambda y: y + 1).lower(given).compile()(placed(mesh, x[:, :1], a))


def _uneven_batch(mesh, x, a):
    return jax.jit(jax.vmap(jnp.add))(placed(mesh, x, a), placed(mesh, x[1:]))


def _exchange_size(mesh, x, a):
    return mapped(lambda y: lax.all_to_all(y, a, 1, 0), mesh, P(a), P(None, a))(x)


def _permutation_range(mesh, x, a):
    return mapped(lambda y: lax.ppermute(y, a, [(0, mesh.shape[a])]), mesh, P(a), P(a))(x)


def _swap_size(mesh, x, a):
    return mapped(lambda y: lax.pswapaxes(y, a, 1), mesh, P(a), P(None, a))(x)


def _gather_dimension(mesh, x, a):
    return mapped(lambda y: lax.all_gather(y, a, axis=7), mesh, P(a), P(a))(x)


def _scatter_size(mesh, x, a):
    return mapped(lambda y: lax.psum_scatter(y, a, scatter_dimension=1), mesh, P(a), P(a))(x)


def _shared_groups(mesh, x, a):
    groups = [[0, 1], [1, *range(2, mesh.shape[a])]]
    return mapped(lambda y: lax.psum(y, a, axis_index_groups=groups), mesh, P(a), P(a), check_vma=False)(x)


def _repeated_reduction(mesh, x, a):
    return mapped(lambda y: lax.psum(y, (a, a)), mesh, P(a), P())(x)


def _mesh_names(mesh, x, a):
    return jax.make_mesh((1, *mesh.devices.shape), mesh.axis_names, devices=list(mesh.devices.flat))


def _larger_update(mesh, x, a):
    return jax.jit(lambda y: lax.dynamic_update_slice(y[:1], y, (0, 0)))(placed(mesh, x, a))


def _mixed_dtypes(mesh, x, a):
    return jax.jit(lambda y: lax.concatenate([y, y.astype(jnp.int32)], 0))(placed(mesh, x, a))


def _unhashable_static(mesh, x, a):
    return jax.jit(lambda y, k: y * len(k), static_argnums=1)(placed(mesh, x, a), [1, 2])


def lowered(collective):
    """A call that lowers a collective with a repeated axis, without compiling: there some releases end the process."""

    def call(mesh, x, a):
        placed_x = placed(mesh, x, a)
        mapped(lambda y: collective(y, (a, a)), mesh, P(a), P(a), check_vma=False).lower(placed_x)
        return placed_x

    return call


def _gradient_of_an_array(mesh, x, a):
    return jax.grad(lambda y: y * y)(placed(mesh, x, a))


def _gradient_of_integers(mesh, x, a):
    return jax.grad(lambda y: (y * y).sum())(placed(mesh, x.astype(np.int32), a))


def _real_holomorphic(mesh, x, a):
    return jax.grad(lambda y: (y * y).sum(), holomorphic=True)(placed(mesh, x, a))


def _complex_gradient(mesh, x, a):
    return jax.grad(lambda y: (y * y).sum())(placed(mesh, x.astype(np.complex64), a))


def _wrong_cotangent(mesh, x, a):
    return jax.vjp(lambda y: y * y, placed(mesh, x, a))[1](placed(mesh, x[:1]))


def _wrong_tangent(mesh, x, a):
    given = placed(mesh, x, a)
    return jax.jvp(lambda y: y * y, (given,), (given.astype(jnp.int32),))


def _wrong_rule(mesh, x, a):
    rule = jax.custom_vjp(lambda y, z: y * z)
    rule.defvjp(lambda y, z: (y * z, None), lambda kept, g: (g,))
    return jax.grad(lambda y: rule(y, y).sum())(placed(mesh, x, a))


def _branch_types(mesh, x, a):
    return jax.jit(lambda y: lax.cond(y[0, 0] > 0, lambda v: v, lambda v: v[:1], y))(placed(mesh, x, a))


def _loop_types(mesh, x, a):
    return jax.jit(lambda y: lax.while_loop(lambda c: True, lambda c: c.astype(jnp.int32), y))(
        placed(mesh, x, a)
    )


def _scan_lengths(mesh, x, a):
    return jax.jit(lambda y: lax.scan(lambda c, r: (c, None), 0, (y, y[1:])))(placed(mesh, x, a))


def _truth_of_a_sum(mesh, x, a):
    return jax.jit(lambda y: y if y.sum() > 0 else -y)(placed(mesh, x, a))


def _masked_size(mesh, x, a):
    return jax.jit(lambda y: y[y > 1])(placed(mesh, x, a))


def _kept_tracer(mesh, x, a):
    kept = []
    jax.jit(lambda y: kept.append(y * 2))(placed(mesh, x, a))
    return kept[0] + 1


def _array_inside(mesh, x, a):
    return jax.jit(lambda y: np.asarray(y) + 1)(placed(mesh, x, a))


def _longer_out_spec(mesh, x, a):
    return mapped(lambda y: y.sum(), mesh, P(a), P(a))(x)


def _unknown_out_axis(mesh, x, a):
    return mapped(lambda y: y, mesh, P(a), P("nowhere"))(x)


def _manual_constraint(mesh, x, a):
    def held(y):
        return lax.with_sharding_constraint(y, NamedSharding(mesh, P(a)))

    return mapped(held, mesh, P(a), P(a))(x)


def _compiled_dtype(mesh, x, a):
    compiled = jax.jit(lambda y: y + 1).lower(placed(mesh, x, a)).compile()
    return compiled(placed(mesh, x.astype(np.int32), a))


def _compiled_tree(mesh, x, a):
    given = placed(mesh, x, a)
    return jax.jit(lambda t: t["p"] + 1).lower({"p": given}).compile()({"q": given})


def _too_many_shardings(mesh, x, a):
    place = NamedSharding(mesh, P(a))
    return jax.jit(lambda y: (y, y), out_shardings=(place, place, place))(placed(mesh, x, a))


def _unknown_memory(mesh, x, a):
    return jax.device_put(x, NamedSharding(mesh, P(a), memory_kind="nowhere"))


def _alike_names(mesh, x, a):
    return Mesh(mesh.devices.reshape(-1, 1), (a, a))


def _axis_past_the_last(mesh, x, a):
    return jax.jit(lambda y: y.sum(axis=5))(placed(mesh, x, a))


def _larger_slice(mesh, x, a):
    return jax.jit(lambda y: lax.dynamic_slice_in_dim(y, 0, 2 * y.shape[0]))(placed(mesh, x, a))


def _contracted_sizes(mesh, x, a):
    return jax.jit(lambda y: y @ y[1:])(placed(mesh, x, a))


def _reshaped_size(mesh, x, a):
    return jax.jit(lambda y: y.reshape(-1, y.shape[1] + 1))(placed(mesh, x, a))


def _key_size(mesh, x, a):
    return jax.random.bits(jnp.zeros(3, jnp.uint32))


def _batched_axis(mesh, x, a):
    return jax.vmap(lambda y: y, in_axes=3)(placed(mesh, x, a))


def _more_rows_than_devices(mesh, x, a):
    many = len(jax.devices()) + 1
    return jax.pmap(lambda y: y + 1)(np.zeros((many, 2), np.float32))


def _deleted_argument(mesh, x, a):
    given = placed(mesh, x, a)
    run = jax.jit(lambda y: y + 1, donate_argnums=0)
    jax.block_until_ready(run(given))
    return run(given)


REPEATED = "unique|duplicate|repeated|more than once"

REFUSALS: dict[str, tuple[Callable[..., Any], str]] = {
    "longer_spec": (_longer_spec, "rank|dimension|length|ndim"),
    "unknown_axis": (_unknown_axis, "nowhere"),
    "repeated_axis": (_repeated_axis, "duplicate|more than once"),
    "indivisible_put": (_indivisible_put, "divisible|partitioned"),
    "indivisible_result": (_indivisible_result, "divisible|partitioned"),
    "indivisible_input": (_indivisible_input, "divisible|partitioned"),
    "unbound_axis": (_unbound_axis, "nowhere"),
    "unbound_outside": (_unbound_outside, "unbound axis name"),
    "indivisible_block": (_indivisible_block, "divisible|partitioned"),
    "longer_in_spec": (_longer_in_spec, "rank"),
    "too_few_specs": (_too_few_specs, "in_specs"),
    "varying_output": (_varying_output, "out_specs"),
    "duplicate_sources": (_duplicate_sources, "unique|duplicate"),
    "duplicate_targets": (_duplicate_targets, "unique|duplicate"),
    "uneven_scatter": (_uneven_scatter, "divisible|divide|scatter"),
    "uneven_exchange": (_uneven_exchange, "divisible|divide|split"),
    "uneven_groups": (_uneven_groups, "axis_index_groups|replica id"),
    "axis_mapped_twice": (_axis_mapped_twice, "mesh|Manual|manual"),
    "changing_carry": (_changing_carry, "carry"),
    "other_mesh": (_other_mesh, "incompatible devices"),
    "smaller_mesh": (_smaller_mesh, "incompatible devices"),
    "donated": (_donated, "deleted"),
    "deleted": (_deleted, "deleted"),
    "donated_twice": (_donated_twice, "donate"),
    "unknown_constraint": (_unknown_constraint, "rank|dimension|length|ndim"),
    "mismatched_sum": (_mismatched_sum, "[Ss]harding"),
    "ambiguous_product": (_ambiguous_product, "out_sharding|ambiguous|[Cc]ontracting"),
    "ambiguous_reshape": (_ambiguous_reshape, "out_sharding|not supported"),
    "ambiguous_gather": (_ambiguous_gather, "out_sharding"),
    "uneven_slice": (_uneven_slice, "divisible|sharded dim"),
    "scan_over_sharded": (_scan_over_sharded, "0th dimension|leading|scan"),
    "no_out_sharding": (_no_out_sharding, "out_sharding"),
    "too_many_devices": (_too_many_devices, "devices"),
    "wrong_shards": (_wrong_shards, "shape|shard"),
    "constraint_axis": (_constraint_axis, "nowhere"),
    "manual_axis": (_manual_axis, "nowhere"),
    "compiled_sharding": (_compiled_sharding, "sharding"),
    "compiled_shape": (_compiled_shape, "compiled with|types"),
    "exchange_size": (_exchange_size, "size|split"),
    "permutation_range": (_permutation_range, "out of bounds|range|permut|source|replica|partition"),
    "swap_size": (_swap_size, "size"),
    "gather_dimension": (_gather_dimension, "out of bounds|out of range"),
    "scatter_size": (_scatter_size, "size"),
    "shared_groups": (_shared_groups, "exactly once|unique|more than once|overlap"),
    "repeated_reduction": (_repeated_reduction, REPEATED),
    "mesh_names": (_mesh_names, "axis_names|same length|number of|ndim"),
    "larger_update": (_larger_update, "shape|less than or equal"),
    "mixed_dtypes": (_mixed_dtypes, "dtype"),
    "unhashable_static": (_unhashable_static, "hash"),
    "lowered_sum": (lowered(lax.psum), REPEATED),
    "lowered_gather": (lowered(lax.all_gather), REPEATED),
    "lowered_exchange": (
        lowered(lambda y, axes: lax.all_to_all(jnp.resize(y, (lax.axis_size(axes), 2)), axes, 0, 0)),
        REPEATED,
    ),
    "lowered_permutation": (lowered(lambda y, axes: lax.ppermute(y, axes, [(0, 1)])), REPEATED),
    "gradient_of_an_array": (_gradient_of_an_array, "scalar"),
    "gradient_of_integers": (_gradient_of_integers, "int32"),
    "real_holomorphic": (_real_holomorphic, "holomorphic"),
    "complex_gradient": (_complex_gradient, "holomorphic|real"),
    "wrong_cotangent": (_wrong_cotangent, "cotangent|shape"),
    "wrong_tangent": (_wrong_tangent, "tangent"),
    "wrong_rule": (_wrong_rule, "bwd|cotangent|structure"),
    "branch_types": (_branch_types, "true_fun|branch"),
    "loop_types": (_loop_types, "body_fun|carry"),
    "scan_lengths": (_scan_lengths, "leading|length|sizes"),
    "truth_of_a_sum": (_truth_of_a_sum, "bool|concret"),
    "masked_size": (_masked_size, "[Bb]oolean"),
    "kept_tracer": (_kept_tracer, "[Ll]eak|escaped|[Uu]nexpected"),
    "array_inside": (_array_inside, "numpy|[Tt]racer"),
    "longer_out_spec": (_longer_out_spec, "rank|out_specs"),
    "unknown_out_axis": (_unknown_out_axis, "nowhere"),
    "manual_constraint": (_manual_constraint, "[Mm]anual"),
    "compiled_dtype": (_compiled_dtype, "compiled|types"),
    "compiled_tree": (_compiled_tree, "tree|structure|compiled"),
    "too_many_shardings": (_too_many_shardings, "out_shardings|prefix|tree"),
    "unknown_memory": (_unknown_memory, "memory"),
    "alike_names": (_alike_names, "unique|duplicate|repeated"),
    "axis_past_the_last": (_axis_past_the_last, "out of bounds|out of range"),
    "larger_slice": (_larger_slice, "slice_sizes|shape|less than or equal"),
    "contracted_sizes": (_contracted_sizes, "contract|shape"),
    "reshaped_size": (_reshaped_size, "size|reshape|divis"),
    "key_size": (_key_size, "key"),
    "batched_axis": (_batched_axis, "axis|rank|dimension"),
    "more_rows_than_devices": (_more_rows_than_devices, "devices|replicas|divide"),
    "deleted_argument": (_deleted_argument, "deleted|donated"),
    "uneven_batch": (_uneven_batch, "vmap got inconsistent sizes|inconsistent"),
}
"""By name: a call of (mesh, host array, last mesh axis), and a pattern that the error's message must contain."""


def reason_of(error: Exception) -> str:
    """The message without source locations, which contain names of this module's own functions."""
    return re.sub(r"loc\(.*\)", "", str(error))


ENDING = ("repeated_reduction", "deleted_argument")
"""The kinds that end the process on some release. Only the full profile runs them."""


class Refusal(Operation):
    """Calls that must be refused: specs of the wrong rank, unknown axes, indivisible dimensions, mismatched shardings,
    ambiguous products, permutations with duplicates, outputs that vary although their spec says otherwise, arrays of
    another mesh, donated buffers."""

    name = "refusal"
    family = "refusals"
    level = "L2"
    modes: ClassVar[tuple[str, ...]] = ("host",)

    def variants(self, mesh: MeshShape) -> Iterator[Variant]:
        if mesh.sizes[mesh.names[-1]] < 2:
            return
        for kind in REFUSALS:
            ordinary = mesh == preferred(mesh.size)
            if len(mesh.names) == 1 and kind == "mismatched_sum":
                continue  # with one axis both shardings are the same
            yield Variant.of(2 if ordinary and kind not in ENDING else 3, kind=kind)

    def plan(self, request: Request) -> Plan:
        size = request.mesh.size
        x = Argument((2 * size, 4 * size), "float32", (None, None))
        options = {"kind": request.variant["kind"]}
        return Plan((x,), (Result((1,), "bool", (None,)),), options, judge="bits")

    def refuses(self, variant: Variant, mesh: MeshShape, owners: Any) -> str | None:
        return "each process would raise alone"

    @staticmethod
    def host(mesh, x, *, kind):
        call, words = REFUSALS[kind]
        try:
            jax.block_until_ready(call(mesh, x, mesh.axis_names[-1]))
            refused = False
        except Exception as error:
            if not re.search(words, reason_of(error)):
                raise
            refused = True
        return placed(mesh, np.array([refused]))

    @staticmethod
    def reference(x):
        return np.ones(1, bool)
