# SPDX-License-Identifier: Apache-2.0
"""Small rules of functions and options that a list of what the table spells showed to be missing: trees, axes of first
weights, meshes, foreign calls, printed parts, exported platforms, and sparse matrices."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.nn.initializers
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshmark.operations.base import Missing
from meshmark.operations.programs.forms.options import wrong
from meshmark.operations.programs.refusals import placed
from meshmark.operations.programs.small_rules.comparing import expect
from meshmark.operations.programs.small_rules.sharing import WAYS, numbers


@jax.tree_util.register_pytree_node_class
class Box:
    """A node of a tree with one child, without names."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def tree_flatten(self) -> tuple[Any, None]:
        """The child."""
        return (self.inside,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> Box:
        """The node of a child."""
        return cls(*children)


def _functions_of_trees(line, grid):
    """Functions of trees, in both modules that have them, give sharded leaves in one order, with and without jit."""
    host = numbers(2 * line.size, 3)
    x, y = placed(line, host, "d"), placed(line, 2 * host)
    tree = {"b": [x, None], "a": Box(y)}
    rights = [2 * host, host]
    old, new = jax.tree_util, jax.tree
    lists = {
        "tree_leaves": old.tree_leaves(tree),
        "tree_flatten": old.tree_flatten(tree)[0],
        "leaves": new.leaves(tree),
        "flatten": new.flatten(tree)[0],
        "tree_leaves_with_path": [v for _, v in old.tree_leaves_with_path(tree)],
        "tree_flatten_with_path": [v for _, v in old.tree_flatten_with_path(tree)[0]],
        "flatten_with_path": [v for _, v in new.flatten_with_path(tree)[0]],
    }
    for name, leaves in lists.items():
        expect(len(leaves), 2, f"the number of leaves of {name}")
        for number, (leaf, right) in enumerate(zip(leaves, rights, strict=True)):
            expect(leaf, right, f"leaf {number} of {name}")
    kind = old.tree_structure(tree)
    expect(kind == new.structure(tree), True, "whether two structures of a tree are equal")
    expect(old.treedef_is_leaf(kind), False, "whether a tree is a leaf")
    expect(len(old.treedef_children(kind)), 2, "the number of children")
    joined = old.treedef_tuple(old.treedef_children(kind))
    expect(new.unflatten(joined, [y, x])[1][0], host, "a leaf of a joined structure")
    for way, call in WAYS.items():
        for name, function in (("tree_map", old.tree_map), ("map", new.map)):
            made = call(lambda t, f=function: f(lambda v, w: v * 3 + w, t, t))(tree)
            expect(made["a"].inside, 8 * host, f"{name} in a node without names, {way}")
            expect(made["b"][0], 4 * host, f"{name} in a list, {way}")
            expect(made["b"][1], None, f"{name} of None, {way}")
        sums = {
            "tree_reduce": lambda t: old.tree_reduce(lambda v, w: v - w, t),
            "reduce": lambda t: new.reduce(lambda v, w: v - w, t),
        }
        if hasattr(new, "reduce_associative"):
            sums["reduce_associative"] = lambda t: new.reduce_associative(lambda v, w: v - w, t)
        for name, function in sums.items():
            expect(call(function)(tree), host, f"{name} {way}")
    expect(old.tree_all({"u": True, "v": False}), False, "whether all leaves are true")
    stopped = new.leaves(tree, is_leaf=lambda v: isinstance(v, Box))
    expect(isinstance(stopped[0], Box), True, "whether a node that is called a leaf stays whole")
    turned = old.tree_transpose(old.tree_structure((0, 0)), old.tree_structure([0, 0]), ([x, y], [y, x]))
    expect(turned[0][1], 2 * host, "a leaf of a transposed tree")
    spread = new.broadcast({"a": 1, "b": 2}, tree) if hasattr(new, "broadcast") else None
    if spread is not None:
        expect(new.leaves(spread), [1, 2], "the leaves of a prefix that is spread over a tree")
    path = old.tree_flatten_with_path(tree)[0][1][0]
    expect(old.keystr(path, simple=True, separator="/"), "b/0", "the simple text of a path")


def _axes_of_first_weights(line, grid):
    """First weights count inputs and outputs along the axes that are named, leave out those of a batch, and have the
    asked dtype."""
    every, key, shape = jax.nn.initializers, jax.random.key(7), (64, 32, 16)
    named: dict[str, Any] = {"in_axis": 0, "out_axis": 1, "batch_axis": 2}
    kinds = {
        "glorot_normal": (every.glorot_normal, 2 / (64 + 32)),
        "glorot_uniform": (every.glorot_uniform, 2 / (64 + 32)),
        "he_normal": (every.he_normal, 2 / 64),
        "he_uniform": (every.he_uniform, 2 / 64),
        "kaiming_normal": (every.kaiming_normal, 2 / 64),
        "kaiming_uniform": (every.kaiming_uniform, 2 / 64),
        "lecun_normal": (every.lecun_normal, 1 / 64),
        "lecun_uniform": (every.lecun_uniform, 1 / 64),
        "xavier_normal": (every.xavier_normal, 2 / (64 + 32)),
        "xavier_uniform": (every.xavier_uniform, 2 / (64 + 32)),
        "variance_scaling": (lambda **o: every.variance_scaling(1.0, "fan_out", "uniform", **o), 1 / 32),
    }
    draws = {name: make(**named, dtype=jnp.bfloat16) for name, (make, _) in kinds.items()}
    place = NamedSharding(line, P("d" if shape[0] % line.size == 0 else None))
    made = jax.jit(lambda k: {name: draw(k, shape) for name, draw in draws.items()}, out_shardings=place)(key)
    for name, drawn in made.items():
        variance = kinds[name][1]
        expect(drawn.dtype, jnp.bfloat16, f"the dtype of {name}")
        off = abs(np.asarray(drawn, np.float64).var() / variance - 1)
        wrong(
            off > 12 / np.sqrt(drawn.size),
            f"{name} by axes is off by {off:.3g} of its variance {variance:.4g}",
        )
    centre = np.asarray(every.delta_orthogonal(scale=3.0, column_axis=-2, dtype=np.float32)(key, (3, 4, 4)))[
        1
    ]
    wrong(not np.allclose(centre @ centre.T, 9 * np.eye(4), atol=1e-3), "orthogonal columns of a scale")


def _options_of_meshes(line, grid):
    """Meshes that are made with options have each device once, the asked shape and types, and compute."""
    from jax.experimental import mesh_utils

    devices = list(line.devices.flat)
    shape = grid.devices.shape
    made = {
        "contiguous": mesh_utils.create_device_mesh(shape, devices, contiguous_submeshes=True),
        "split": mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True),
    }
    made["hybrid"] = mesh_utils.create_hybrid_device_mesh(
        shape, (1, 1), devices, process_is_granule=True, should_sort_granules_by_key=False,
        allow_split_physical_axes=True,
    )  # fmt: skip
    host = numbers(2 * line.size, 4)
    for name, array in made.items():
        expect(array.shape, shape, f"the shape of a mesh, {name}")
        expect(
            sorted(d.id for d in array.flat), sorted(d.id for d in devices), f"the devices of a mesh, {name}"
        )
        mesh = jax.sharding.Mesh(array, grid.axis_names, axis_types=(AxisType.Auto,) * 2)
        region = jax.shard_map(
            lambda v: jax.lax.psum(v, "x"), mesh=mesh, in_specs=P("x", "y"), out_specs=P(None, "y")
        )
        if host.shape[1] % shape[1] == 0:
            right = host.reshape(shape[0], -1, 4).sum(0)
            expect(jax.jit(region)(placed(mesh, host, "x", "y")), right, f"a sum over a mesh, {name}")


def _options_of_foreign_calls(line, grid):
    """Layouts, aliases and effects of a foreign call are in the lowered program, also in a region."""

    def call(v: Any) -> Any:
        return jax.ffi.ffi_call(
            "meshmark_none", jax.ShapeDtypeStruct(v.shape, v.dtype), has_side_effect=True,
            input_layouts=((1, 0),), output_layouts=(1, 0), input_output_aliases={0: 0},
        )(v, scale=np.float32(2))  # fmt: skip

    region = jax.shard_map(call, mesh=line, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    kind = jax.ShapeDtypeStruct((2 * line.size, 3), np.float32)
    text = jax.jit(region).lower(kind).as_text()
    lines = [row for row in text.splitlines() if "meshmark_none" in row]
    expect(len(lines), 1, "the number of foreign calls")
    for what in ("has_side_effect = true", "output_operand_alias", "scale = 2.0", "dense<[0, 1]>"):
        wrong(what not in lines[0], f"the call lacks {what}: {lines[0][:300]}")


def _printed_parts(line, grid):
    """`debug.print(partitioned=True)` prints the part of each device, and without it the whole array once."""
    host = np.arange(float(line.size), dtype=np.float32) + 0.5
    x = placed(line, host, "d")
    for parts in (True, False):
        out = io.StringIO()

        def f(v, parts=parts):
            jax.debug.print("seen {v}", v=v, partitioned=parts)
            return v + 1

        with contextlib.redirect_stdout(out):
            expect(jax.jit(f)(x), host + 1, "a program that prints")
            jax.effects_barrier()
        lines = [text.strip(" []\n").split() for text in out.getvalue().split("seen ")[1:]]
        right = sorted(host.reshape(-1, 1).tolist()) if parts else [host.tolist()]
        expect(sorted([float(n) for n in line] for line in lines), right, f"what is printed, parts: {parts}")


def _exported_platforms(line, grid):
    """A program that is exported for named platforms says them, keeps its devices, and runs on its own one."""
    from jax import export

    if find_spec("flatbuffers") is None:
        raise Missing("jax.export needs flatbuffers: pip install flatbuffers")
    if not hasattr(export, "default_export_platform"):
        raise Missing("this release does not say for which platform it exports")
    wanted = tuple(sorted({export.default_export_platform(), "cpu", "tpu"}))
    region = jax.shard_map(lambda v: jax.lax.psum(v, "d"), mesh=line, in_specs=P("d"), out_specs=P())
    host = numbers(2 * line.size, 3)
    x = placed(line, host, "d")
    made = export.export(jax.jit(region), platforms=wanted)(x)
    expect(tuple(sorted(made.platforms)), wanted, "the platforms of an exported program")
    expect(made.nr_devices, line.size, "the devices of an exported program")
    again = export.deserialize(made.serialize())
    expect(jax.jit(again.call)(x), host.reshape(line.size, 2, 3).sum(0), "an exported sum")


def _copies_of_aligned_arrays(line, grid):
    """What copies an array of the host keeps its numbers when the array is written later, also where the array starts
    at a multiple of 64 bytes, which a CPU backend can use in place."""
    device = line.devices.flat[0]
    copies: dict[str, Callable[[np.ndarray], Any]] = {
        "asarray": lambda v: jnp.asarray(v, copy=True),
        "array": lambda v: jnp.array(v, copy=True),
        "copy": lambda v: jnp.copy(v),
        "from_dlpack": lambda v: jnp.from_dlpack(v, device=device, copy=True),
    }
    right = np.arange(64, dtype=np.float32)
    for name, copy in copies.items():
        room = np.zeros(right.nbytes + 64, np.uint8)
        host = room[-room.ctypes.data % 64 :][: right.nbytes].view(np.float32)
        host[:] = right
        found = jax.block_until_ready(copy(host))
        host[:] = -1
        expect(found, right, f"{name} of an aligned array that was written later")


def _functions_of_sparse_matrices(line, grid):
    """Functions of `jax.experimental.sparse` of a matrix whose numbers are sharded, beside those of the whole one."""
    from jax.experimental import sparse

    n = 2 * line.size
    full = numbers(n, n) * (numbers(n, n, step=7) > 2)
    rows = sparse.BCOO.fromdense(full, n_batch=1)
    places = placed(line, rows.indices, "d")
    m = sparse.BCOO((placed(line, rows.data, "d"), places), shape=(n, n))
    other = sparse.BCOO.fromdense(full, n_batch=1)
    v = placed(line, numbers(n), "d")
    calls: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
        "bcoo_todense": (sparse.bcoo_todense, full),
        "bcoo_transpose": (lambda s: sparse.bcoo_todense(sparse.bcoo_transpose(
            sparse.bcoo_update_layout(s, n_batch=0), permutation=(1, 0))), full.T),
        "bcoo_reduce_sum": (lambda s: sparse.bcoo_todense(sparse.bcoo_reduce_sum(s, axes=(1,))), full.sum(1)),
        "bcoo_multiply_dense": (
            lambda s: sparse.bcoo_todense(
                sparse.BCOO((sparse.bcoo_multiply_dense(s, v[None, :]), s.indices), shape=s.shape)),
            full * numbers(n)[None, :]),
        "bcoo_dot_general": (
            lambda s: sparse.bcoo_dot_general(s, v, dimension_numbers=(((1,), (0,)), ((), ()))), full @ numbers(n)),
        "bcoo_sort_indices": (lambda s: sparse.bcoo_todense(sparse.bcoo_sort_indices(s)), full),
        "bcoo_sum_duplicates": (lambda s: sparse.bcoo_todense(sparse.bcoo_sum_duplicates(s, nse=n)), full),
        "bcoo_slice": (
            lambda s: sparse.bcoo_todense(sparse.bcoo_slice(s, start_indices=(1, 0), limit_indices=(n, n - 1))),
            full[1:, :-1]),
        "bcoo_rev": (lambda s: sparse.bcoo_todense(sparse.bcoo_rev(s, dimensions=(1,))), full[:, ::-1]),
        "bcoo_concatenate": (
            lambda s: sparse.bcoo_todense(sparse.bcoo_concatenate([s, other], dimension=0)),
            np.concatenate([full, full])),
        "bcoo_reshape": (
            lambda s: sparse.bcoo_todense(sparse.bcoo_reshape(
                sparse.bcoo_update_layout(s, n_batch=0), new_sizes=(n // 2, 2 * n))), full.reshape(n // 2, 2 * n)),
    }  # fmt: skip
    for name, (call, right) in calls.items():
        for way, run in WAYS.items():
            expect(run(call)(m), right.astype(np.float32), f"{name} {way}")
    slope = sparse.grad(lambda s, w: (s @ w).sum())(m, v)
    expect(slope.data.shape, m.data.shape, "the shape of the gradient by a sparse matrix")
    first = int(np.asarray(m.indices)[0, 0, 0])
    if first < n:  # a row without numbers names a column past the last one
        found = np.asarray(slope.data)[0, 0]
        expect(found, numbers(n)[first], "the first number of the gradient by a sparse matrix")


RULES_OF_WHAT_REMAINS: dict[str, Callable[..., None]] = {
    "functions_of_trees": _functions_of_trees,
    "axes_of_first_weights": _axes_of_first_weights,
    "options_of_meshes": _options_of_meshes,
    "options_of_foreign_calls": _options_of_foreign_calls,
    "printed_parts": _printed_parts,
    "exported_platforms": _exported_platforms,
    "copies_of_aligned_arrays": _copies_of_aligned_arrays,
    "functions_of_sparse_matrices": _functions_of_sparse_matrices,
}
"""Each function takes a mesh over one axis "d" and one over two axes "x" and "y", both of all devices."""
