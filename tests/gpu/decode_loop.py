# SPDX-License-Identifier: Apache-2.0
"""A speculative decoding loop of nothing but ops and small tensor updates: what an engine captures as a CUDA graph.

Two lookup tables stand in for the models: the logits of a row are those of its last token. Every number that changes
from step to step (last tokens, positions) lives on the device and is advanced there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hetero_spec import ops

Parameters = dict[str, float | int | None]


class DecodeLoop:
    """B requests that draft K tokens a step from a drafter with another vocabulary, verify and go on."""

    def __init__(
        self,
        device: torch.device,
        *,
        batch_size: int = 5,
        max_draft_tokens: int = 3,
        vocab_size: int = 1003,
        dtype: torch.dtype = torch.bfloat16,
        parameters: Parameters | None = None,
        rule: str = "token",
    ) -> None:
        generator = torch.Generator().manual_seed(17)
        target = torch.randn(vocab_size, vocab_size, generator=generator) * 2.0
        shared = torch.randperm(vocab_size, generator=generator)
        draft_to_target = shared.to(torch.int32)
        draft_to_target[::11] = -1  # ids that the target does not have
        target_to_draft = torch.full((vocab_size,), -1, dtype=torch.int32)
        kept = draft_to_target >= 0
        target_to_draft[draft_to_target[kept].long()] = torch.nonzero(kept).flatten().to(torch.int32)
        noise = torch.randn(vocab_size, vocab_size, generator=generator)
        self.target = target.to(device, dtype)
        self.drafter = (target[:, shared] + 0.5 * noise).to(device, dtype)
        self.draft_to_target = draft_to_target.to(device)
        self.target_to_draft = target_to_draft.to(device)
        self.parameters = parameters or {}
        self.rule = rule
        self.max_draft_tokens = max_draft_tokens
        lengths = torch.full((batch_size,), max_draft_tokens, dtype=torch.int32)
        cu = torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0).to(torch.int32)])
        self.cu = cu.to(device)
        self.seeds = (torch.arange(batch_size) + 100).to(device)
        # The state, and what the last step returned.
        self.last = torch.arange(batch_size, device=device)
        self.positions = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self.emitted = torch.full((batch_size, max_draft_tokens + 1), -1, dtype=torch.int32, device=device)
        self.status = torch.zeros(batch_size, dtype=torch.int32, device=device)

    def step(self) -> None:
        """One round for all requests; no value reaches the host."""
        token_ids, logits, stats = [], [], []
        last, position = self.last, self.positions
        for _ in range(self.max_draft_tokens):
            rows = self.drafter[last]
            draft = ops.draft_sample(
                rows, self.draft_to_target, seeds=self.seeds, positions=position, **self.parameters
            )
            token_ids.append(draft.target_token_ids)
            logits.append(rows)
            stats.append(draft.stats)
            last, position = draft.target_token_ids.long(), position + 1
        drafted = torch.stack(token_ids, 1)  # [B, K]
        before = torch.cat([self.last.unsqueeze(1), drafted.long()], 1)  # the token before each target row
        out = ops.rejection_sample(
            self.target[before.flatten()],
            drafted.flatten(),
            self.cu,
            self.max_draft_tokens,
            draft_logits=torch.stack(logits, 1).flatten(0, 1),
            draft_stats=torch.stack(stats, 1).flatten(0, 1),
            target_to_draft_ids=self.target_to_draft,
            seeds=self.seeds,
            positions=self.positions,
            rule=self.rule,
            **self.parameters,
        )
        accepted = out.num_accepted_tokens.long()
        self.emitted.copy_(out.output_token_ids)
        self.status.bitwise_or_(out.status)
        self.last.copy_(out.output_token_ids.long().gather(1, accepted.unsqueeze(1)).squeeze(1))
        self.positions.add_(accepted + 1)

    def run(self, steps: int, step: Callable[[], None] | None = None) -> tuple[list[list[int]], list[int]]:
        """(tokens of each request, positions) after some steps, by `step` (a graph's replay) or by calling."""
        texts: list[list[int]] = [[] for _ in range(len(self.seeds))]
        for _ in range(steps):
            (step or self.step)()
            for text, row in zip(texts, self.emitted.tolist(), strict=True):
                text += [token for token in row if token >= 0]
        return texts, self.positions.tolist()

    def state(self) -> tuple[Tensor, ...]:
        return self.last, self.positions, self.emitted, self.status

    def restore(self, state: tuple[Tensor, ...]) -> None:
        """Put back a copy of `state()`, in place: a graph keeps the addresses."""
        for mine, saved in zip(self.state(), state, strict=True):
            mine.copy_(saved)
