"""All cases of the contract."""

import cases_attention
import cases_blocks
import cases_efficient
import cases_positions
import cases_recurrent
import cases_scores

from zoo import layers

MODULES = (cases_scores, cases_attention, cases_efficient, cases_positions, cases_blocks, cases_recurrent)
CASES = [case for module in MODULES for case in module.CASES]
ATTENTION_CASES = [case for case in CASES if issubclass(case.covers, layers.BaseAttention)]
MASKED_CASES = [case for case in CASES if case.hides]
