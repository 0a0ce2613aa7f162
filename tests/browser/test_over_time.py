# SPDX-License-Identifier: Apache-2.0
"""Releases on the page: one axis by date, and the changes of each release."""


def test_releases_stand_on_one_axis(open_page):
    tab = open_page()
    text = tab.inner_text("#time-out")
    assert "the 15 cases that each of its releases has." in text
    assert "No trend of times: JAX 0.10.2, 0.12.0.1 were timed in fewer than six processes" in text
    label = tab.locator("#time-out svg[role=img]").get_attribute("aria-label")
    assert "JAX 0.10.2 2026-06-17, JAX 0.11.2 2026-09-17, JAX 0.12.0.1 2026-10-21, libtpu 1 <" in label
    tab.click("#time-out details:not(.prov) > summary")
    rows = [row.inner_text().split("\t") for row in tab.locator("#time-out tbody tr").all()]
    assert [row[:2] for row in rows][:3] == [
        ["2026-06-17", "JAX 0.10.2"],
        ["2026-09-17", "JAX 0.11.2"],
        ["2026-10-21", "JAX 0.12.0.1"],
    ]
    assert rows[3][0] == "not known", "no index has this libtpu"
    heads = tab.locator("#time-out thead th").all_inner_texts()
    assert [head.split()[0] for head in heads[3:]] == [
        *("Cases", "Known", "Bytes", "Temporary", "Programs", "collectives", "bytes", "memory", "temporary"),
        "projected",
    ]
    sent = heads.index("bytes that a device sends, v5e:2x4")
    assert [row[sent] for row in rows[:3]] == ["", "128 B", "256 B"]
    assert tab.locator("#time-out .g-pair").count() == 2, "JAX and libtpu of one environment are joined"


def test_the_weather_tells_what_a_release_changed(open_page):
    tab = open_page("#view=weather")
    text = " ".join(tab.inner_text("#weather").split())
    assert "1 program changed" in text and "Sums over the 1 program that every release compiled" in text
    row = tab.locator("#weather-out table").last.locator("tbody tr").first.inner_text().split("\t")
    assert row[:2] == ["psum/axes=x/manual/8/float32/4KiB", "bytes that a device sends"]
    assert row[2:] == ["128 B", "256 B", "2"]
    tab.click("#weather-out a[href='#view=time']")
    tab.wait_for_url("**view=time*")
