# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces, joined by veth or by a delaying relay, and always removed.

    with joined() as hosts: ...            # by veth
    with joined(delay=0.05) as hosts: ...  # packets 50 ms late each way: netem, or a relay between two TUN devices

It needs root, iproute2, and a kernel with network namespaces; `missing` names what is not available. gloo uses the
address of the host's name, so each namespace has its own /etc/hosts (`ip netns exec` puts /etc/netns/NAME/hosts there).
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.checkout import ROOT

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000
_PAIRS = itertools.count()
_NAMESPACES, _ETC = Path("/run/netns"), Path("/etc/netns")


@dataclass(frozen=True)
class Host:
    """One end of the link."""

    namespace: str
    address: str
    device: str

    def inside(self, *command: str) -> list[str]:
        """The command, as run on this host."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def unplug(self) -> None:
        """Cut the link: nobody is told, packets are lost from now on."""
        _ip("-n", self.namespace, "link", "set", self.device, "down")


class NetworkError(RuntimeError):
    """The hosts can't be made."""


@cache
def missing(delayed: bool = False) -> str:
    """Why there can be no such hosts here, or ""."""
    if sys.platform != "linux" or os.geteuid():
        return "network namespaces take root on Linux"
    if not shutil.which("ip"):
        return "network namespaces take ip, of Debian's iproute2"
    if delayed and not Path("/dev/net/tun").exists():
        return "a late link takes /dev/net/tun"
    try:
        with joined():
            return ""
    except NetworkError as error:
        return f"no network namespaces here: {error}"


def lateness() -> str:
    """How packets are delayed here: netem, a relay, or that they can't be."""
    if missing(delayed=True):
        return "neither can be had"
    with joined(delay=0.01) as hosts:
        return "the relay" if hosts[0].device == "late" else "netem"


@contextmanager
def joined(delay: float = 0.0) -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other, each packet so many seconds late each way; NetworkError where that can't be."""
    with ExitStack() as stack:
        pair = next(_PAIRS)  # several pairs at once are of one process where threads share the work
        names = [f"mm{os.getpid()}{end}{pair}" for end in "ab"]
        for name, address in zip(names, ADDRESSES, strict=True):
            stack.enter_context(_namespace(name, address))
        if not delay:
            yield _wired(names)
            return
        hosts = _wired(names)
        late = [_netem(host, delay) for host in hosts]
        if all(late):
            yield hosts
            return
        _ip("-n", names[0], "link", "del", hosts[0].device)
        stack.enter_context(_relay(names, delay))
        yield _hosts(names, "late")


ADDRESSES = ("10.203.0.1", "10.203.0.2")
"""Of the two hosts. Nothing outside of the namespaces sees them."""


@contextmanager
def _namespace(name: str, address: str) -> Iterator[None]:
    etc = _ETC / name
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        etc.mkdir(parents=True, exist_ok=True)
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n")
        yield
    finally:
        shutil.rmtree(etc, ignore_errors=True)
        if _ETC.is_dir() and not any(_ETC.iterdir()):
            _ETC.rmdir()
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _wired(names: list[str]) -> tuple[Host, Host]:
    device = f"v{names[0]}"
    _ip("-n", names[0], "link", "add", device, "type", "veth", "peer", "name", device, "netns", names[1])
    return _hosts(names, device)


def _hosts(names: list[str], device: str) -> tuple[Host, Host]:
    for name, own in zip(names, ADDRESSES, strict=True):
        other = next(address for address in ADDRESSES if address != own)
        _ip("-n", name, "addr", "add", own, "peer", other, "dev", device)
        _ip("-n", name, "link", "set", device, "up")
    first, second = (Host(name, own, device) for name, own in zip(names, ADDRESSES, strict=True))
    return first, second


def _netem(host: Host, delay: float) -> bool:
    """Whether the kernel has netem, and delays now what this host sends."""
    if not shutil.which("tc"):
        return False
    command = ["tc", "-n", host.namespace, "qdisc", "add", "dev", host.device, "root", "netem"]
    found = subprocess.run([*command, "delay", f"{1000 * delay:g}ms"], capture_output=True, check=False)
    return found.returncode == 0


@contextmanager
def _relay(names: list[str], delay: float) -> Iterator[None]:
    """A process that carries packets between TUN devices called `late` in both namespaces."""
    command = [sys.executable, "-m", "tests.ranks.network", *names, str(delay)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stderr is not None
        if child.stdout.readline() != b"ready\n":
            last = (child.stderr.read().decode().splitlines() or ["no message"])[-1]
            raise NetworkError(f"the relay did not start: {last}")
        yield
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()


def _ip(*arguments: str) -> None:
    found = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if found.returncode:
        raise NetworkError(f"ip {' '.join(arguments)}: {found.stderr.strip()}")


# The relay --------------------------------------------------------------------------------------------------


def _tun(namespace: str, device: str) -> int:
    """Open a new TUN device in a namespace (this process stays in it); os.setns is there from Python 3.12 on alone."""
    descriptor = os.open(_NAMESPACES / namespace, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(descriptor)
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


def relay(names: list[str], delay: float) -> None:
    """Carry packets between both namespaces for ever, each so many seconds late, in their order."""
    ends = [_tun(name, "late") for name in names]
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    print("ready", flush=True)
    underway: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        wait = max(0.0, underway[0][0] - time.monotonic()) if underway else None
        for end in select.select(ends, [], [], wait)[0]:
            number += 1
            packet = os.read(end, 1 << 16)
            heapq.heappush(underway, (time.monotonic() + delay, number, other[end], packet))
        while underway and underway[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(underway)
            try:
                os.write(to, packet)
            except OSError:  # that end is down: the packet is lost, as on a wire
                continue


if __name__ == "__main__":
    relay(sys.argv[1:3], float(sys.argv[3]))
