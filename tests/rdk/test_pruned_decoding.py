# SPDX-License-Identifier: Apache-2.0
"""A pruned drafter whose missing tokens a kernel gives back: they are drafted, fed back and accepted."""

import pytest
import torch

from hetero_spec.decoding import SpeculativeDecoder
from hetero_spec.models import TextTokenizer
from hetero_spec.rdk import MixKernel, SparseKernel, prune_vocabulary
from tests.decoding.toys import full_logits, tiny_llama, trained_pair
from tests.rdk.test_prune import PROMPT, PROMPTS, smollm_like, target_of
from tests.tools.chi_square import departs

KEEP = [i for i in range(40) if i % 2]
OUTSIDE = torch.tensor([float(i % 2 == 0) for i in range(40)])
# The first gives every draft to tokens that were pruned.
KERNELS = {
    "all_outside": MixKernel(1.0, OUTSIDE / 20.0),
    "mix": MixKernel(0.3, OUTSIDE / 20.0),
    "sparse": SparseKernel.from_lists({i: [(i - 1, 1.0)] for i in KEEP}, 40, 0.5),
}


def make_decoder(model, kernel, **arguments):
    drafter = prune_vocabulary(model, KEEP).drafter()
    return SpeculativeDecoder(target_of(model), drafter, method="rdk", rdk_kernel=kernel, lookahead=3, **arguments)


@pytest.mark.parametrize("name", KERNELS)
def test_text_of_a_seed_is_that_of_plain_decoding(name):
    model = smollm_like(3)
    decoder = make_decoder(model, KERNELS[name], verify="exact")
    arguments = {"max_new_tokens": 60, "temperature": 1.5, "seed": [1, 2, 3]}
    plain = SpeculativeDecoder(target_of(model), method="none").generate(PROMPTS, **arguments)
    results = decoder.generate(PROMPTS, **arguments)
    assert [result.token_ids for result in results] == [result.token_ids for result in plain]
    assert decoder.stats.acceptance_rate > 0.0, "pruned tokens were drafted, accepted and fed back"


def test_law_of_the_second_token():
    """Drafted behind a first token that may be a pruned one."""
    model = smollm_like(3)
    decoder = make_decoder(model, KERNELS["mix"])
    counts = torch.zeros(40, 40)
    for first in range(0, 750, 250):
        seeds = list(range(first, first + 250))
        for result in decoder.generate([PROMPT] * 250, max_new_tokens=3, temperature=1.5, seed=seeds):
            counts[result.token_ids[0], result.token_ids[1]] += 1
    start = torch.softmax(full_logits(model, PROMPT)[-1].double() / 1.5, 0)
    then = torch.stack([full_logits(model, [*PROMPT, i])[-1].double() for i in range(40)])
    law = start[:, None] * torch.softmax(then / 1.5, 1)
    assert not departs(counts.flatten(), law.flatten())
    assert departs(counts.flatten(), law.T.flatten())
    assert decoder.stats.acceptance_rate > 0.0


def test_a_pruned_model_is_taken_as_it_is():
    """Without the step of making a drafter of it: the decoder has both tokenizers."""
    target, drafter = trained_pair()
    size = drafter.get_vocab_size()
    pruned = prune_vocabulary(
        tiny_llama(size, 4), range(size // 2), tokenizer=TextTokenizer(drafter, eos_token_ids=[0])
    )
    loaded = (tiny_llama(target.get_vocab_size(), 3), TextTokenizer(target, eos_token_ids=[0]))
    decoder = SpeculativeDecoder(loaded, pruned, "tli", 3)
    plain = SpeculativeDecoder(loaded, method="none")
    arguments = {"max_new_tokens": 12, "temperature": 0.0}
    assert decoder.generate("the man", **arguments).token_ids == plain.generate("the man", **arguments).token_ids
    assert decoder.stats.proposed > 0
    with pytest.raises(ValueError, match="method slem: drafter must have a vocab_map"):
        SpeculativeDecoder(loaded, pruned, "slem", 3)
    nameless = prune_vocabulary(tiny_llama(size, 4), range(size // 2))
    with pytest.raises(ValueError, match="drafter must have a tokenizer, got a PrunedModel without one"):
        SpeculativeDecoder(loaded, nameless, "tli", 3)
