# SPDX-License-Identifier: Apache-2.0
"""Published specifications of accelerators, for shares of peak and projections of time.

Every figure is per chip, dense (NVIDIA's datasheets print figures with sparsity, twice as large), in bytes, bytes/s
and FLOP/s, with its source beside it. A figure that is not published is absent, and figures derived from it are None:
a share of peak is then N/A and never guessed.

Sources, by the key that `Chip.sources` uses:

- v4, v5e, v5p, v6e, tpu7x: https://docs.cloud.google.com/tpu/docs/v4 (and /v5e, /v5p, /v6e, /tpu7x). They
  print the bidirectional bandwidth of the inter-chip interconnect (ICI) per chip; a link has half of that divided
  by the number of links, one way. The pages' bisection bandwidth agrees: 1.6 TB/s for the 32 links that cut a v5e
  pod of 16x16 is 50 GB/s per link.
- scaling-book: "How to Think About TPUs", https://jax-ml.github.io/scaling-book/tpus: capacities in GiB where the
  pages say GB, int8 of v5p, which slices have wraparound links, and ICI figures per link (45 GB/s for v4).
- isca-2023: N. Jouppi et al., "TPU v4: An Optically Reconfigurable Supercomputer for Machine Learning with Hardware
  Support for Embeddings", https://arxiv.org/abs/2304.01433: six ICI links of 50 GB/s.
- a100: NVIDIA A100 Tensor Core GPU datasheet, and "NVIDIA A100 Tensor Core GPU Architecture" (white paper).
- h100: "NVIDIA H100 Tensor Core GPU Architecture" (white paper), table 3, SXM5; NVIDIA H100 datasheet.
- h200: NVIDIA H200 datasheet (the same compute as H100 SXM).
- b200: NVIDIA Blackwell datasheet, column HGX B200; NVIDIA DGX B200 datasheet (1,440 GB and 64 TB/s of 8 GPUs; the
  Blackwell datasheet says 7.7 TB/s).
- dgx: NVIDIA DGX A100, H100, H200 and B200 datasheets: eight GPUs on NVSwitch, one network adapter per GPU, of
  200 Gbit/s (A100) or 400 Gbit/s.
- lax.Precision: the docstring of `jax.lax.Precision`, for the arithmetic of a float32 product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GB, TB = 1e9, 1e12
GIB = 2**30
TERA = 1e12


@dataclass(frozen=True)
class Chip:
    """One kind of accelerator, with the figures that its maker publishes."""

    name: str
    """The name in topologies: v5e, h100."""
    device_kinds: tuple[str, ...]
    """The values of `jax.Device.device_kind` for this chip."""
    memory_bytes: float
    """Capacity of the chip's memory (HBM)."""
    memory_bandwidth: float
    """Bytes/s between the chip and its memory."""
    flops: Mapping[str, float]
    """Dense FLOP/s by arithmetic: float64, float32, tf32, bfloat16, float16, float8, int8."""
    links: int
    """Links to the neighbours in the torus (ICI), or NVLinks to the switch."""
    link_bandwidth: float
    """Bytes/s of one link, one way."""
    devices_per_chip: int
    """The number of JAX devices per chip. A Megacore chip (v4, v5p) is one device."""
    sources: Mapping[str, str]
    """The source of each figure: keys of the list above."""
    network: str = "torus"
    """torus: links to the neighbours. switch: all links go to a switch that reaches the chips of its domain."""
    dimensions: int = 0
    """The number of dimensions of the torus."""
    domain: int = 0
    """Chips on one switch (a host); `host_bandwidth` holds between hosts."""
    host_bandwidth: float | None = None
    """Bytes/s of one chip to other hosts, one way."""
    switch_reduces: bool = False
    """Whether the switch reduces and multicasts (NVLink SHARP): an all-reduce then sends its buffer once."""
    sold_as: tuple[str, ...] = ()
    """Further names under which the chip is sold, rented or written of."""


def _chip(flops: dict[str, float], sources: dict[str, str], **fields: object) -> Chip:
    frozen = {name: MappingProxyType(value) for name, value in (("flops", flops), ("sources", sources))}
    return Chip(**frozen, **fields)  # type: ignore[arg-type]


_HOPPER = {
    "float64": 66.9 * TERA,  # tensor cores
    "float32": 66.9 * TERA,
    "tf32": 494.7 * TERA,
    "bfloat16": 989.4 * TERA,
    "float16": 989.4 * TERA,
    "float8": 1978.9 * TERA,
    "int8": 1978.9 * TERA,
}

_AMPERE = {
    "float64": 19.5 * TERA,  # tensor cores
    "float32": 19.5 * TERA,
    "tf32": 156 * TERA,
    "bfloat16": 312 * TERA,
    "float16": 312 * TERA,
    "int8": 624 * TERA,
}

_CHIPS = (
    _chip(
        {"bfloat16": 275 * TERA, "int8": 275 * TERA},
        {"flops": "v4", "memory": "v4", "links": "isca-2023"},
        name="v4",
        device_kinds=("TPU v4",),
        memory_bytes=32 * GIB,
        memory_bandwidth=1200 * GB,
        links=6,
        link_bandwidth=50 * GB,
        devices_per_chip=1,
        dimensions=3,
    ),
    _chip(
        {"bfloat16": 197 * TERA, "int8": 393 * TERA},
        {"flops": "v5e", "memory": "v5e (819 GB/s; later editions say 800), scaling-book", "links": "v5e"},
        name="v5e",
        device_kinds=("TPU v5 lite", "TPU v5e"),
        sold_as=("v5litepod", "TPU v5 lite"),
        memory_bytes=16 * GIB,
        memory_bandwidth=819 * GB,
        links=4,
        link_bandwidth=50 * GB,  # 400 GB/s bidirectional
        devices_per_chip=1,
        dimensions=2,
    ),
    _chip(
        {"bfloat16": 459 * TERA, "float8": 459 * TERA, "int8": 918 * TERA},
        {"flops": "v5p; int8: scaling-book", "memory": "v5p", "links": "v5p"},
        name="v5p",
        device_kinds=("TPU v5", "TPU v5p"),
        memory_bytes=95 * GIB,
        memory_bandwidth=2765 * GB,
        links=6,
        link_bandwidth=100 * GB,  # 1,200 GB/s bidirectional
        devices_per_chip=1,
        dimensions=3,
    ),
    _chip(
        {"bfloat16": 918 * TERA, "float8": 918 * TERA, "int8": 1836 * TERA},
        {"flops": "v6e, tpu7x", "memory": "tpu7x (1,638 GB/s; the page of v6e says 1,600)", "links": "v6e"},
        name="v6e",
        device_kinds=("TPU v6 lite", "TPU v6e"),
        sold_as=("Trillium", "TPU v6 lite", "TPU v6"),
        memory_bytes=32 * GIB,
        memory_bandwidth=1638 * GB,
        links=4,
        link_bandwidth=100 * GB,  # 800 GB/s bidirectional
        devices_per_chip=1,
        dimensions=2,
    ),
    _chip(
        {"bfloat16": 2307 * TERA, "float8": 4614 * TERA},
        {"flops": "tpu7x", "memory": "tpu7x", "links": "tpu7x"},
        name="tpu7x",
        device_kinds=("TPU7x",),
        sold_as=("Ironwood", "TPU v7", "TPU v7x", "TPU 7x"),
        memory_bytes=192 * GIB,
        memory_bandwidth=7380 * GB,
        links=6,
        link_bandwidth=100 * GB,  # 1,200 GB/s bidirectional
        devices_per_chip=2,  # two chiplets, "lets you access two TPU devices"
        dimensions=3,
    ),
    _chip(
        _AMPERE,
        {"flops": "a100", "memory": "a100", "links": "a100", "host_bandwidth": "dgx"},
        name="a100",
        device_kinds=("NVIDIA A100-SXM4-80GB",),
        memory_bytes=80 * GB,
        memory_bandwidth=2039 * GB,
        links=12,
        link_bandwidth=25 * GB,  # 600 GB/s both ways together
        devices_per_chip=1,
        network="switch",
        domain=8,
        host_bandwidth=25 * GB,
    ),
    _chip(
        _AMPERE,
        {"flops": "a100", "memory": "a100", "links": "a100", "host_bandwidth": "dgx"},
        name="a100-40gb",
        device_kinds=("NVIDIA A100-SXM4-40GB",),
        memory_bytes=40 * GB,
        memory_bandwidth=1555 * GB,
        links=12,
        link_bandwidth=25 * GB,
        devices_per_chip=1,
        network="switch",
        domain=8,
        host_bandwidth=25 * GB,
    ),
    _chip(
        _HOPPER,
        {"flops": "h100", "memory": "h100", "links": "h100", "host_bandwidth": "dgx"},
        name="h100",
        device_kinds=("NVIDIA H100 80GB HBM3",),  # SXM5; the PCIe and NVL boards are other chips
        memory_bytes=80 * GB,
        memory_bandwidth=3350 * GB,
        links=18,
        link_bandwidth=25 * GB,  # 900 GB/s both ways together
        devices_per_chip=1,
        network="switch",
        domain=8,
        host_bandwidth=50 * GB,
        switch_reduces=True,
    ),
    _chip(
        _HOPPER,
        {"flops": "h100, h200", "memory": "h200", "links": "h200", "host_bandwidth": "dgx"},
        name="h200",
        device_kinds=("NVIDIA H200",),
        memory_bytes=141 * GB,
        memory_bandwidth=4800 * GB,
        links=18,
        link_bandwidth=25 * GB,
        devices_per_chip=1,
        network="switch",
        domain=8,
        host_bandwidth=50 * GB,
        switch_reduces=True,
    ),
    _chip(
        {
            "float64": 37 * TERA,
            "float32": 75 * TERA,
            "tf32": 1100 * TERA,  # these are printed with sparsity: 2.2, 4.5, 4.5, 9 and 9 PFLOP/s
            "bfloat16": 2250 * TERA,
            "float16": 2250 * TERA,
            "float8": 4500 * TERA,
            "int8": 4500 * TERA,
        },
        {"flops": "b200", "memory": "b200", "links": "b200", "host_bandwidth": "dgx"},
        name="b200",
        device_kinds=("NVIDIA B200",),
        memory_bytes=180 * GB,
        memory_bandwidth=8 * TB,
        links=18,
        link_bandwidth=50 * GB,  # 1.8 TB/s both ways together
        devices_per_chip=1,
        network="switch",
        domain=8,
        host_bandwidth=50 * GB,
        switch_reduces=True,
    ),
)

CHIPS: Mapping[str, Chip] = MappingProxyType({chip.name: chip for chip in _CHIPS})
"""The chips by name."""

KINDS: Mapping[str, Chip] = MappingProxyType({kind: chip for chip in _CHIPS for kind in chip.device_kinds})
"""The chips by the kinds of their devices."""

OTHERS = (
    *("mi100", "mi210", "mi250", "mi250x", "mi300x", "mi308x", "mi325x", "mi350x", "mi355x"),
    *("p100", "v100", "a10g", "a30", "a40", "a800", "l40", "l40s", "h20", "h800", "b100", "b300", "gaudi"),
)
"""Names of accelerators of which the table has no figures. Superchips are left out: they are CPUs too."""

_PASSES = {"default": 1, "fastest": 1, "high": 3, "highest": 6}
"""bfloat16 passes of a float32 product on TPU, by precision (lax.Precision)."""

_FLOAT32 = {"default": "tf32", "fastest": "tf32", "high": "tf32", "highest": "float32"}
"""The arithmetic of a float32 product on a GPU with TF32, by precision (lax.Precision)."""

_TPU_BITS: Mapping[str, int] = MappingProxyType({"default": 8, "high": 16})
_GPU_BITS: Mapping[str, int] = MappingProxyType({"default": 11, "high": 11})


def factor_bits(chip: Chip) -> Mapping[str, int]:
    """The significand bits to which a float32 product rounds its factors, by precision (lax.Precision): one and three
    bfloat16 passes on TPU, TF32 on GPU. At highest precision it does not round them."""
    return _TPU_BITS if chip.network == "torus" else _GPU_BITS


_OWN = {
    "float64": "float64",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "int8": "int8",
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
}
"""The arithmetic of products of these dtypes, whatever the precision: it "only has an effect on float32
computations" (lax.Precision)."""


def chip_of(device_kind: str) -> Chip | None:
    """The chip with this `jax.Device.device_kind`; None for a kind that is not listed."""
    return KINDS.get(device_kind)


def spelled_otherwise(kind: str) -> str:
    """The kind of a listed chip that differs from this text only in spaces and capital letters; "" if none does."""
    plain = " ".join(kind.lower().split())
    return next((own for own in KINDS if own != kind and own.lower() == plain), "")


def peak_flops(chip: Chip, dtype: str, precision: str = "default") -> float | None:
    """The peak FLOP/s of one JAX device for products of this dtype at this matmul precision; None if it is not
    published.

    For float32 `jax.lax.Precision` documents the arithmetic. On TPU it is one, three or six bfloat16 passes (default,
    high, highest), and so 1, 1/3 or 1/6 of the bfloat16 peak. On GPU it is TF32 at default and high, float32 at
    highest. An empty precision means default. float16 and float64 on TPU, int32 and complex numbers give None.
    """
    precision = precision or "default"
    if dtype == "float32":
        if precision not in _PASSES:
            return None
        tpu = chip.network == "torus"
        peak = chip.flops.get("bfloat16" if tpu else _FLOAT32[precision])
        divided = _PASSES[precision] if tpu else 1
    else:
        peak = chip.flops.get(_OWN.get(dtype, ""))
        divided = 1
    return None if peak is None else peak / divided / chip.devices_per_chip
