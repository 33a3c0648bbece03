# SPDX-License-Identifier: Apache-2.0
"""Write the prompts that the shipped DISCO classifier was calibrated on: `python tools/lookahead_prompts.py FILE`.

None of them is in the embedded drafter's training set, none in the bench.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from drafter_prompts import FREE_HELDOUT, compose_prompts, split_topics

SEED = 20240611  # of train_drafter.py: the topics that it held out


def prompts() -> list[str]:
    _, held_out = split_topics(SEED)
    pairs = zip(FREE_HELDOUT[:30], compose_prompts(held_out, 30, 5), strict=True)
    return [prompt for pair in pairs for prompt in pair]


if __name__ == "__main__":
    lines = [json.dumps(prompt, ensure_ascii=False) if "\n" in prompt else prompt for prompt in prompts()]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")
