# SPDX-License-Identifier: Apache-2.0
"""From prompts to text: the decoder, its lookahead policies, and what an engine must give to take part.

from hetero_spec.decoding import SpeculativeDecoder
from hetero_spec.models import load

decoder = SpeculativeDecoder(load("smollm2"), load("embedded"))
for piece in decoder.stream("The capital of France is", max_new_tokens=40, temperature=0):
    print(piece, end="", flush=True)
print(decoder.stats.acceptance_rate)
"""

from hetero_spec.decoding.decoder import METHODS, Generation, SpeculativeDecoder
from hetero_spec.decoding.lookahead import ConfidenceLookahead, DraftedToken, FixedLookahead, Lookahead
from hetero_spec.decoding.loop import Piece
from hetero_spec.decoding.protocols import Drafter, Sequences, Target
from hetero_spec.decoding.sampling import Sampling
from hetero_spec.decoding.stats import DecodingStats, RequestStats

__all__ = [
    "METHODS",
    "ConfidenceLookahead",
    "DecodingStats",
    "DraftedToken",
    "Drafter",
    "FixedLookahead",
    "Generation",
    "Lookahead",
    "Piece",
    "RequestStats",
    "Sampling",
    "Sequences",
    "SpeculativeDecoder",
    "Target",
]
