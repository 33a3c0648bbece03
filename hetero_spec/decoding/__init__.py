# SPDX-License-Identifier: Apache-2.0
"""From prompts to text: the decoder, its lookahead policies, and what an engine must give to take part.

from hetero_spec.decoding import SpeculativeDecoder
from hetero_spec.models import load

decoder = SpeculativeDecoder(load("smollm2"), load("embedded"))
for piece in decoder.stream("The capital of France is", max_new_tokens=40, temperature=0):
    print(piece, end="", flush=True)
print(decoder.stats.acceptance_rate)
"""

from hetero_spec.decoding.controller import Controller
from hetero_spec.decoding.decoder import Generation, SpeculativeDecoder
from hetero_spec.decoding.disco import DiscoLookahead
from hetero_spec.decoding.lookahead import (
    ConfidenceLookahead,
    DraftedToken,
    FixedLookahead,
    HeuristicLookahead,
    Lookahead,
    OracleLookahead,
)
from hetero_spec.decoding.loop import Piece
from hetero_spec.decoding.methods import METHODS
from hetero_spec.decoding.proposers import Draft, Proposer
from hetero_spec.decoding.protocols import Drafter, Sequences, Target
from hetero_spec.decoding.sampling import Sampling
from hetero_spec.decoding.stats import DecodingStats, RequestStats

__all__ = [
    "METHODS",
    "ConfidenceLookahead",
    "Controller",
    "DecodingStats",
    "DiscoLookahead",
    "Draft",
    "DraftedToken",
    "Drafter",
    "FixedLookahead",
    "Generation",
    "HeuristicLookahead",
    "Lookahead",
    "OracleLookahead",
    "Piece",
    "Proposer",
    "RequestStats",
    "Sampling",
    "Sequences",
    "SpeculativeDecoder",
    "Target",
]
