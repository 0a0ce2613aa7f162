# SPDX-License-Identifier: Apache-2.0
"""Descriptions of GPUs for XLA's compiler, written from published specifications.

XLA compiles for a GPU without the hardware from a `GpuTargetConfigProto` in text form (openxla/xla,
xla/stream_executor/device_description.proto). The compute capability and its limits determine the generated code;
sizes and rates only steer the cost model.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshmark.devices.chips import CHIPS


@dataclass(frozen=True)
class Gpu:
    """The figures of a GPU that XLA needs, except memory and peaks, which are in `meshmark.devices.chips`."""

    title: str
    """The name that CUDA gives, which JAX shows as the device kind."""
    capability: tuple[int, int]
    """Compute capability, major and minor."""
    cores: int
    """The number of enabled streaming multiprocessors."""
    l2_bytes: int


GPUS = {
    # NVIDIA H100 Tensor Core GPU Architecture (white paper), table 3, H100 SXM5: 132 SMs, 50 MB of L2.
    "h100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 50 << 20),
    # NVIDIA H200 data sheet: the chip of the H100 SXM with other memory.
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 50 << 20),
    # Blackwell Tuning Guide, "Increased L2 capacity": 126 MB. SMs: Chips and Cheese, "Nvidia's B200", and openxla/xla,
    # xla/backends/gpu/target_config/specs/b200.txtpb, which was read from a device.
    "b200": Gpu("NVIDIA B200", (10, 0), 148, 126 << 20),
}

FPUS = 128
"""Single-precision units of one SM (CUDA C++ Programming Guide, "Arithmetic Instructions")."""

# CUDA C++ Programming Guide, "Compute Capabilities", table of technical specifications per compute capability;
# equal for 9.0 and 10.0. Shared memory: 228 KiB per multiprocessor, 227 KiB per block on request, otherwise 48 KiB.
LIMITS = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "threads_per_core_limit": 2048,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "shared_memory_per_block": 48 << 10,
    "shared_memory_per_core": 228 << 10,
    "shared_memory_per_block_optin": 227 << 10,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "thread_dim_limit_x": 1024,
    "thread_dim_limit_y": 1024,
    "thread_dim_limit_z": 64,
    "fpus_per_core": FPUS,
}

# The library versions of the first CUDA 13; the compiler decides by them what it may generate.
LIBRARIES = {
    "driver_version": "13.0.0",
    "runtime_version": "13.0.0",
    "compile_time_toolkit_version": "13.0.0",
    "dnn_version": "9.12.0",
}


def spell_target_config(name: str) -> str:
    """The GpuTargetConfigProto of one of GPUS in text form."""
    gpu, chip = GPUS[name], CHIPS[name]
    numbers = LIMITS | {
        "core_count": gpu.cores,
        # The boost clock at which the cores reach the published peak, two operations per unit and clock.
        "clock_rate_ghz": round(chip.flops["float32"] / (gpu.cores * FPUS * 2) / 1e9, 3),
        "memory_bandwidth": round(chip.memory_bandwidth),
        "l2_cache_size": gpu.l2_bytes,
        "device_memory_size": round(chip.memory_bytes),
    }
    info = [f"  {k}: {v}" for k, v in numbers.items()]
    info += [f'  {k}: "{v}"' for k, v in LIBRARIES.items()]
    info.append(f"  cuda_compute_capability {{ major: {gpu.capability[0]} minor: {gpu.capability[1]} }}")
    major, minor, patch = LIBRARIES["dnn_version"].split(".")
    return "\n".join(
        [
            "gpu_device_info {",
            *info,
            "}",
            'platform_name: "CUDA"',
            f"dnn_version_info {{ major: {major} minor: {minor} patch: {patch} }}",
            f'device_description_str: "{gpu.title}"',
        ]
    )
