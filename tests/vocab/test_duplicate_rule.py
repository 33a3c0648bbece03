# SPDX-License-Identifier: Apache-2.0
"""What the wrong rule for duplicates costs on real models."""

import pytest
import torch

from hetero_spec import models
from hetero_spec.vocab import VocabMap

TEXT = """The lighthouse keeper had not seen a ship for three weeks. Every evening he climbed the stairs, lit the lamp,\
 and wrote a short note in his book: "Clear sky, no sails." On the 14th of May, however, the wind turned, and by noon\
 the sea was white with foam. He put on his old coat (the one with two missing buttons), took the rope from its hook,\
 and went down to the rocks.

There was a boat. It was small, perhaps 5 metres long, and it was half full of water. A girl sat in it, holding a\
 wooden box with both arms. "Are you hurt?" he asked. She shook her head. "Good. Then throw me the line!"
"""


def _boundaries(tokens: list[bytes | None], token_ids: list[int]) -> list[int]:
    """Bytes of text before each token, and after the last."""
    positions = [0]
    for token_id in token_ids:
        positions.append(positions[-1] + len(tokens[token_id]))
    return positions


def _next_token_laws(loaded: models.LoadedModel, token_ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits = loaded.model(torch.tensor([[loaded.tokenizer.bos_token_id, *token_ids]])).logits[0]
    return torch.softmax(logits.double(), dim=-1)


@pytest.mark.models
@pytest.mark.gemma
def test_normal_piece_rule_accepts_what_the_byte_piece_rule_rejects():
    """Exact acceptance of token-level intersection, Gemma 3 270M <- SmolLM2 135M, teacher-forced on a short text.

    On 932 positions of the target's own text it is .61 against .48 (target mass in the map .985 against .81); here, on
    text that neither model wrote, .63 against .51 (.983 against .82).
    """
    missing = [entry.name for entry in models.available() if entry.name != "embedded" and not entry.is_installed]
    if missing:
        pytest.skip(f"The model packages of {', '.join(missing)} are not installed.")
    target, drafter = models.load("gemma3-270m", progress=False), models.load("smollm2", progress=False)
    maps = {
        rule: VocabMap.from_tokenizers(
            target.tokenizer,
            drafter.tokenizer,
            target_vocab_size=target.vocab_size,
            draft_vocab_size=drafter.vocab_size,
            duplicates=rule,
        )
        for rule in ("normal", "byte")
    }
    right = maps["normal"]
    target_ids, draft_ids = list(right.target.encoder(TEXT)), list(right.drafter.encoder(TEXT))
    row_at = {position: row for row, position in enumerate(_boundaries(right.draft_tokens, draft_ids))}
    rows = [
        (row, row_at[position])
        for row, position in enumerate(_boundaries(right.target_tokens, target_ids))
        if position in row_at
    ]
    assert len(rows) > 120
    target_laws = _next_token_laws(target, target_ids)[[row for row, _ in rows]]
    draft_laws = _next_token_laws(drafter, draft_ids)[[row for _, row in rows]]

    acceptance, mass = {}, {}
    for rule, vocab_map in maps.items():
        shared = vocab_map.draft_to_target_ids >= 0
        restricted = draft_laws[:, shared] / draft_laws[:, shared].sum(dim=-1, keepdim=True)
        matched = target_laws[:, vocab_map.draft_to_target_ids[shared].long()]
        acceptance[rule] = float(torch.minimum(matched, restricted).sum(dim=-1).mean())
        mass[rule] = vocab_map.report(target_probs=target_laws.mean(dim=0)).target_mass
        assert acceptance[rule] <= mass[rule]
    assert acceptance["normal"] > 0.58 and mass["normal"] > 0.97
    assert acceptance["byte"] < acceptance["normal"] - 0.08 and mass["byte"] < 0.9
