# SPDX-License-Identifier: Apache-2.0
"""The cores that a process may use: by its affinity, and by the limits of its control groups."""

import os

import pytest

from meshmark.devices import cores, probe
from meshmark.ranks.merge import _alike
from meshmark.timing.compare import incomparable


def control_groups(tmp_path, groups, mounts, limits):
    """A /proc/self with these control groups, mounted below tmp_path, and their files of limits."""
    own = tmp_path / "self"
    own.mkdir()
    (own / "cgroup").write_text(groups)
    (own / "mountinfo").write_text(mounts.replace("AT", str(tmp_path)))
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return own


TWO = "30 29 0:1 / AT rw - cgroup2 cgroup2 rw\n"
ONE = "32 31 0:29 /docker/a AT/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
ONE += "33 31 0:30 / AT/memory rw - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "limits", "granted"),
    [
        ("0::/a/b\n", TWO, {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ("0::/a/b\n", TWO, {"a/cpu.max": "400000 100000", "a/b/cpu.max": "200000 100000"}, 2.0),
        ("0::/a\n", TWO, {"a/cpu.max": "max 100000"}, None),
        (
            "3:memory:/docker/a\n2:cpu,cpuacct:/docker/a\n",
            ONE,
            {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        (
            "2:cpu:/docker/a\n",
            ONE,
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
            None,
        ),
        ("", "", {}, None),
    ],
)
def test_the_limit_of_the_control_groups(tmp_path, groups, mounts, limits, granted):
    assert cores.quota(control_groups(tmp_path, groups, mounts, limits)) == granted
    assert cores.quota(tmp_path / "missing") is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinities")
def test_a_process_on_one_core_says_so(monkeypatch):
    every = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(every)})
        monkeypatch.setattr(os, "cpu_count", lambda: 0)
        assert {"cores": 1, "usable": 1}.items() <= cores.counted().items()
        assert probe.facts().host["usable"] == 1
    finally:
        os.sched_setaffinity(0, every)


HOST = {"system": "Linux", "machine": "x86_64", "cores": 2, "usable": 2}


@pytest.mark.parametrize("change", [{"usable": 1}, {"quota": 0.5}])
def test_a_process_with_fewer_cores_is_another_machine_to_a_comparison(change):
    a, b = ({"virtual": True, "host": HOST | more} for more in ({}, change))
    found = incomparable(a, b)
    assert len(found) == 1 and "unlike machines" in found[0] and next(iter(change)) in found[0]
    earlier = {"virtual": True, "host": {k: v for k, v in HOST.items() if k != "usable"}}
    assert incomparable(earlier, b) == [], "records of earlier versions do not tell"


def test_ranks_may_have_other_cores():
    one, other = ({"facts": {"host": HOST | more, "flags": {}}} for more in ({}, {"usable": 1, "quota": 0.5}))
    assert _alike(one) == _alike(other)


def test_the_size_of_the_pools_of_threads_is_recorded(monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    assert probe.flags_here()["NPROC"] == "1"
