# SPDX-License-Identifier: Apache-2.0
"""Sends and receives: to and from the host, and between devices (test_planted has texts of a compiler)."""

import numpy as np
import pytest

from meshmark.core import hlo
from meshmark.core.hlo_types import Refused
from meshmark.interpreter.faults import Fault, Hang
from tests.interpreter.modules import run, text

ONE = "num_partitions=1"
SENT = (
    "%p = f32[2] parameter(0)",
    "%t = token[] after-all()",
    "%s = (f32[2], u32[], token[]) send(%p, %t), channel_id=1, is_host_transfer=true",
    "%sd = token[] send-done(%s), channel_id=1, is_host_transfer=true",
    "%r = (f32[2], u32[], token[]) recv(%sd), channel_id=2, is_host_transfer=true",
    "%rd = (f32[2], token[]) recv-done(%r), channel_id=2, is_host_transfer=true",
)


def test_what_is_sent_to_the_host_changes_nothing():
    given = np.array([[1, 2]], np.float32)
    last = "%n = f32[2] negate(%p)"
    [seen] = run(*SENT, "%e = token[] get-tuple-element(%rd), index=1", last, arguments=[given], header=ONE)
    assert np.array_equal(seen, -given)
    for used in ("%n = f32[2] get-tuple-element(%rd), index=0", "%n = ((f32[2], token[])) tuple(%rd)"):
        with pytest.raises(Refused, match="what the host answers"):
            run(*SENT, used, arguments=[given], header=ONE)


GIVEN = np.arange(1, 5, dtype=np.float32)
LINE = "{{0,1},{1,2},{2,3}}"


def transfer(send=0, recv=1, sent_pairs=LINE, awaited_pairs=LINE, channel=1, kind="f32[]"):
    """The lines of a send and a recv among four devices; the numbers are the channels' and the places of the lines."""
    pairs = "frontend_attributes={_xla_send_recv_source_target_pairs="
    lines = {
        0: "%v = (f32[], u32[], token[]) recv(%t), channel_id=1, " + pairs + awaited_pairs + "}",
        send
        + 0.5: f"%s = ({kind}, u32[], token[]) send(%p, %t), channel_id={channel}, {pairs}{sent_pairs}}}",
        recv + 0.75: "%vd = (f32[], token[]) recv-done(%v), channel_id=1",
        4: f"%sd = token[] send-done(%s), channel_id={channel}",
        5: "%r = f32[] get-tuple-element(%vd), index=0",
    }
    return (
        f"%p = {kind} parameter(0)",
        "%t = token[] after-all()",
        *(lines[place] for place in sorted(lines)),
    )


def received(**changed):
    [found] = run(*transfer(**changed), arguments=[GIVEN], header="num_partitions=4")
    return found.tolist()


def test_each_device_receives_from_the_one_before_it_and_the_first_one_zero():
    assert received() == [0, 1, 2, 3]
    assert received(sent_pairs="{{3,0}}", awaited_pairs="{{3,0}}") == [4, 0, 0, 0]
    # The text has the done of the recv before the send: the devices receive one after the other.
    assert received(send=2) == [0, 1, 2, 3]


def test_a_ring_of_devices_that_receive_before_they_send_hangs():
    ring = "{{0,1},{1,2},{2,3},{3,0}}"
    assert received(sent_pairs=ring, awaited_pairs=ring) == [4, 1, 2, 3]
    with pytest.raises(Hang, match="which waits for it"):
        received(send=2, sent_pairs=ring, awaited_pairs=ring)


@pytest.mark.parametrize(
    ("changed", "fault", "said"),
    [
        ({"channel": 2}, Hang, "there is none"),
        ({"awaited_pairs": "{{0,1}}"}, Hang, "other pairs"),
        ({"sent_pairs": "{{0,1},{1,1}}", "awaited_pairs": "{{0,1},{1,1}}"}, Fault, "receives twice"),
        ({"sent_pairs": "{{0,7}}", "awaited_pairs": "{{0,7}}"}, Fault, "there is not"),
        ({"kind": "s32[]"}, Fault, "is taken for"),
        ({"sent_pairs": "{}", "awaited_pairs": "{}"}, None, ""),
    ],
)
def test_what_does_not_fit_together_is_a_fault(changed, fault, said):
    if fault is None:
        assert received(**changed) == [0, 0, 0, 0]
        return
    given = GIVEN.astype(np.int32 if changed.get("kind") else np.float32)
    with pytest.raises(fault, match=said):
        run(*transfer(**changed), arguments=[given], header="num_partitions=4")


def test_a_send_without_a_recv_hangs():
    lines = transfer()
    with pytest.raises(Hang, match="s waits for a recv"):
        run(*lines[:2], lines[3], "%n = f32[] negate(%p)", arguments=[GIVEN], header="num_partitions=4")


def test_what_the_text_does_not_say_is_refused():
    nobody = transfer()[3].split(", frontend")[0]
    with pytest.raises(Refused, match="without its pairs"):
        run(
            *(nobody if "%s =" in line else line for line in transfer()),
            arguments=[GIVEN],
            header="num_partitions=4",
        )
    some = [line.replace("={_xla", '={_xla_send_recv_validation="{{3,9}}",_xla') for line in transfer()]
    with pytest.raises(Refused, match="some turns of a loop"):
        run(*some, arguments=[GIVEN], header="num_partitions=4")
    unnamed = [line.replace(", channel_id=1", "") for line in transfer()]
    with pytest.raises(Refused, match="without channel_id"):
        run(*unnamed, arguments=[GIVEN], header="num_partitions=4")


def test_a_send_counts_as_the_permute_from_which_it_was_made():
    [found] = hlo.collectives(text(*transfer(), header="num_partitions=4"))
    assert (found.kind, found.nbytes, found.pairs) == ("collective-permute", 4, ((0, 1), (1, 2), (2, 3)))
    assert found.asynchronous
    assert not hlo.collectives(text(*SENT, header=ONE))
