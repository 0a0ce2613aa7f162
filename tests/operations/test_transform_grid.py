# SPDX-License-Identifier: Apache-2.0
"""Derivatives of examples by their definition, and what the comparison refuses."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshmark.operations.programs.every_transform.grid import Example, compare, cotangent, few, tangent, whole
from meshmark.operations.programs.forms.collective_options import parts_same_as

X, Y = whole(4), whole(4, start=1)


def cubic(x, y, still=()):
    return x**3 * y - 2 * x * y, x + y * y


EXAMPLE = Example(cubic, cubic, (X, Y), (("x",), ()), kinds=(np.float32,))


@pytest.fixture
def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))


def test_a_derivative_up_to_the_fourth_degree_is_exact():
    t, u = whole(4, start=2), whole(4, start=3)
    found = tangent(EXAMPLE, (X, Y), {0: t, 1: u})
    right = ((3 * X**2 * Y - 2 * Y) * t + (X**3 - 2 * X) * u, t + 2 * Y * u)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_array_equal(one, other)
    weights = (whole(4, start=4), whole(4, start=5))
    slope = cotangent(EXAMPLE, (X, Y), 1, weights)
    np.testing.assert_array_equal(slope, weights[0] * (X**3 - 2 * X) + weights[1] * 2 * Y)


def test_what_no_derivative_is_taken_of_stays():
    def held(x, y, still):
        return (x * still[1],)

    example = Example(lambda x, y: (x * jax.lax.stop_gradient(y),), held, (X, Y), (("x",), ()))
    np.testing.assert_array_equal(tangent(example, (X, Y), {1: Y})[0], 0 * X)


def test_a_right_example_passes(mesh):
    compare(mesh, EXAMPLE, "cubic")


@jax.custom_jvp
def slope_of_two(x):
    return x * x


slope_of_two.defjvp(lambda primals, moves: (primals[0] ** 2, moves[0]))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, y: (cubic(x, y)[0], x + y), "result 1 alone"),
        (
            lambda x, y: (cubic(x, y)[0], x + slope_of_two(y)),
            "the linearized function|the tangent|the gradient",
        ),
        (lambda x, y: (cubic(x, y)[0], (x + y * y).astype(jnp.bfloat16)), "bfloat16"),
    ],
)
def test_a_wrong_one_is_refused(mesh, function, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        compare(mesh, replace(EXAMPLE, function=function), "cubic")


def test_a_wrong_replica_is_seen_beside_a_right_one(mesh):
    here = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    pieces = [jax.device_put(np.float32([1, 2 + (k == 3)]), d) for k, d in enumerate(mesh.devices)]
    array = jax.make_array_from_single_device_arrays((2,), here, pieces)
    with pytest.raises(RuntimeError, match=r"the part on .*3 of a pair"):
        parts_same_as(array, np.float32([1, 2]), "a pair")


@pytest.mark.parametrize(
    ("shape", "right"), [((8,), (8,)), ((2, 24), (2, 6)), ((8, 8), (4, 4)), ((5, 1, 7), (5, 1, 3))]
)
def test_many_devices_become_few(shape, right):
    devices = np.arange(np.prod(shape)).reshape(shape)
    found = few(devices)
    assert found.shape == right and found.flat[0] == 0
    assert {*found.flat} <= {*devices.flat}
