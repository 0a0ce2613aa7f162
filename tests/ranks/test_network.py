# SPDX-License-Identifier: Apache-2.0
"""The two hosts of network.py: they reach each other, with the set delay, not after a cut, and leave nothing behind."""

import re
import subprocess

import pytest

from tests.ranks import network


@pytest.fixture(autouse=True)
def _possible():
    if without := network.missing(delayed=True):
        pytest.skip(without)


ANSWER = """
import socket, sys
with socket.create_server(("", 7001)) as listening:
    print("listens", flush=True)
    with listening.accept()[0] as one:
        while data := one.recv(100):
            one.sendall(data)
"""
ASK = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7001), timeout=3) as one:
    one.settimeout(3)
    for _ in range(5):
        start = time.monotonic()
        one.sendall(b"a")
        assert one.recv(1) == b"a"
        print(f"{1000 * (time.monotonic() - start):.1f} ms")
"""


def asked(hosts, cut=False):
    """The milliseconds of five round trips between the hosts."""
    answer = subprocess.Popen(hosts[0].inside("python3", "-c", ANSWER), stdout=subprocess.PIPE)
    try:
        assert answer.stdout.readline() == b"listens\n"
        if cut:
            hosts[0].unplug()
        command = hosts[1].inside("python3", "-c", ASK, hosts[0].address)
        found = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return [float(ms) for ms in re.findall(r"([\d.]+) ms", found.stdout)]
    finally:
        answer.kill()
        answer.communicate()


def namespaces():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def test_hosts_reach_each_other_until_the_link_is_cut_and_leave_nothing():
    with network.joined() as hosts:
        assert len(asked(hosts)) == 5
        assert asked(hosts, cut=True) == []
        assert all(host.namespace in namespaces() for host in hosts)
    assert not any(host.namespace in namespaces() for host in hosts)


def test_a_late_link_takes_twice_its_delay_for_each_round_trip():
    with network.joined(delay=0.05) as hosts:
        found = asked(hosts)
    assert len(found) == 5
    assert min(found) >= 100, "50 ms each way"


def test_hosts_are_taken_down_after_an_error():
    with pytest.raises(ValueError, match="inside"), network.joined(delay=0.01) as hosts:
        raise ValueError("inside")
    assert not any(host.namespace in namespaces() for host in hosts)
