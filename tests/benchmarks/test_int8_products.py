"""The product in int8 is right, and the command prints a table."""

import pytest

from benchmarks.int8_products import main, measure


def test_a_table_is_printed_and_the_error_is_that_of_eight_bits(capsys):
    with pytest.raises(SystemExit):
        main(["--rounds", "0"])
    capsys.readouterr()
    assert main(["--tiny", "--rounds", "1"]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("| 3 × 5 by 5 × 7 | ") and line.count("|") == 6
    found = measure(5, 70, 3, rounds=1)
    assert found["float32"][1] < 1e-6 < found["bfloat16"][1] < 0.02
    if "int8" not in found:
        pytest.skip("This TensorFlow runs without oneDNN.")
    assert 1e-4 < found["int8"][1] < 0.03
