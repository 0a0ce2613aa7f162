# SPDX-License-Identifier: Apache-2.0
"""Faults of the partitioner where two unusual coordinates meet: an operation and a mesh, a dtype and a device count.
They were listed before anybody looked at what the table holds."""

from tests.studies.faults_of_combinations import kind
from tests.studies.meeting import parted


def spans(label: str, count: int) -> bool:
    """Whether a mesh has so many axes of more than one device."""
    return sum(int(n) > 1 for n in label.removesuffix("-shuffled").split("x")) == count


parted(
    "a_turned_array_of_three_dimensions_on_4x2_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "transpose" and len(p["permutation"]) == 3 and mesh == "4x2",
    operations=("psum_scatter",),
    meshes=("4x2",),
)
parted(
    "integers_that_are_reshaped_on_4x2_are_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "reshape" and given[0].dtype.kind == "i" and mesh == "4x2",
    operations=("pswapaxes",),
    meshes=("4x2",),
)
parted(
    "a_sort_on_devices_in_another_order_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "sort" and mesh.endswith("shuffled"),
    operations=("sort",),
)
parted(
    "a_product_of_bfloat16_on_devices_in_another_order_is_moved_to_the_next_device",
    lambda name, given, p, mesh: (
        name == "dot_general" and kind(given[0]) == "bfloat16" and mesh.endswith("shuffled")
    ),
    operations=("batch_matmul",),
    dtypes=("bfloat16",),
)
parted(
    "a_convolution_on_three_axes_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "conv_general_dilated" and spans(mesh, 3),
    operations=("convolution_gradient",),
)
parted(
    "a_gather_of_elements_on_six_devices_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "gather" and mesh == "6",
    operations=("ppermute",),
    meshes=("6",),
)
parted(
    "scattered_sums_of_elements_on_three_devices_are_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "scatter-add" and mesh == "3",
    operations=("embedding_gradient",),
)
parted(
    "a_running_sum_of_integers_on_three_axes_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "cumsum" and given[0].dtype.kind == "i" and spans(mesh, 3),
    operations=("repeat",),
)
parted(
    "the_largest_of_integers_on_six_devices_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "reduce_max" and given[0].dtype.kind == "i" and mesh in ("6", "2x3"),
    operations=("function_grid",),
)
parted(
    "a_dynamic_slice_on_one_axis_of_eight_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "dynamic_slice" and mesh == "8",
    operations=("dynamic_slice",),
)
parted(
    "a_dynamic_update_on_4x2_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "dynamic_update_slice" and mesh == "4x2",
    operations=("rearranging_gradient",),
)
parted(
    "the_place_of_the_largest_on_three_axes_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "argmax" and spans(mesh, 3),
    operations=("function_grid",),
)
parted(
    "sums_in_windows_on_4x2_are_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "reduce_window_sum" and mesh == "4x2",
    operations=("dtype_grid",),
    meshes=("4x2",),
)
parted(
    "a_reversal_on_one_axis_of_eight_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "rev" and mesh == "8",
    operations=("with_sharding_constraint",),
)
parted(
    "a_padding_on_devices_in_another_order_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "pad" and mesh.endswith("shuffled"),
    operations=("pad_concatenate",),
)
parted(
    "the_greatest_elements_on_4x2_are_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "top_k" and mesh == "4x2",
    operations=("top_k",),
)
parted(
    "a_triangular_solution_on_4x2_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "triangular_solve" and mesh == "4x2",
    operations=("mesh_grid",),
)
parted(
    "a_Cholesky_factor_on_three_axes_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "cholesky" and spans(mesh, 3),
    operations=("mesh_grid",),
)
parted(
    "a_Fourier_transform_on_three_axes_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "fft" and spans(mesh, 3),
    operations=("fourier_grid",),
)
parted(
    "random_bits_on_devices_in_another_order_are_moved_to_the_next_device",
    lambda name, given, p, mesh: name in ("random_bits", "threefry2x32") and mesh.endswith("shuffled"),
    operations=("mesh_grid",),
)
parted(
    "a_loop_on_six_devices_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "scan" and mesh in ("6", "2x3"),
    operations=("decoder",),
)
parted(
    "a_ragged_product_on_4x2_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "ragged_dot_general" and mesh == "4x2",
    operations=("mesh_grid",),
)
parted(
    "a_split_on_three_axes_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "split" and spans(mesh, 3),
    operations=("rearranging_gradient",),
)
parted(
    "a_concatenation_of_bytes_on_one_axis_is_moved_to_the_next_device",
    lambda name, given, p, mesh: name == "concatenate" and given[0].dtype.itemsize == 1 and mesh == "8",
    operations=("mesh_grid",),
)
