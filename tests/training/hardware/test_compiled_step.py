"""What a compiled training step sends, read from XLA's text."""

import pytest

from training.hardware.compiled_step import sent_bytes

GROUPS = {
    "{{0,1,2,3}}": 4,
    "[2,2]<=[4]": 2,
    "mesh['axis_0'=4,'axis_1'=1] {'axis_0'}": 4,
    "mesh['a'=2,'b'=3], device_ids=([2,3]T(1,0)) {'a','b'}": 6,
}


def test_all_reduce():
    for groups, devices in GROUPS.items():
        line = f"  %a = (f32[10,4]{{1,0}}, bf16[8]{{0}}) all-reduce(%b, %c), channel_id=1, replica_groups={groups}, x=1"
        assert sent_bytes(line) == {"all-reduce": pytest.approx(2 * (devices - 1) / devices * (160 + 16))}


def test_other_operations_and_results_of_tuples():
    text = """
      %x = f32[8,2]{1,0} all-gather(%y), replica_groups={{0,1}}, dimensions={0}
      %z = f32[2,2]{1,0} reduce-scatter(%y), replica_groups={{0,1}}
      %g = f32[8]{0} get-tuple-element(%all-reduce.3), index=0
    """
    assert sent_bytes(text) == {"all-gather": 32, "reduce-scatter": 16}
    with pytest.raises(ValueError, match="replica_groups=new"):
        sent_bytes("%x = f32[8] all-reduce(%y), replica_groups=new")
