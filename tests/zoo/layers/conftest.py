"""Assertions of the helpers in tests/support explain themselves, too."""

import pytest

pytest.register_assert_rewrite("support.layers.matrix_checks", "support.layers.references")
