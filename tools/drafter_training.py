# SPDX-License-Identifier: Apache-2.0
"""Distillation of the target's laws into the drafter, and the overlap that decides acceptance."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from drafter_data import Batch, Sequences, make_batch, plan_epoch
from drafter_model import DrafterModel
from torch import Tensor

_ROWS_AT_ONCE = 256  # rows of logits whose float32 forms stay in the processor's cache
_SPELLING_WEIGHT = 0.3  # of a position inside an unshared token: it serves the context, TLI never drafts there


class _DistillationLoss(torch.autograd.Function):
    """Loss of rows of hidden states under the tied head, with its gradient made on the way, chunk by chunk.

    Per row, with target law P on the shared tokens (mass S) and the drafter's law q on its shared tokens (TLI masks the
    others before the softmax):

        (1 - overlap_weight) * S * cross_entropy(P / S, q)
        + overlap_weight * mean over T in (1, 0.7) of (1 - sum_t min(P_T(t), q_T(t)))

    The first term is a good teacher far from the goal, the second IS the goal: one minus the probability that a draft
    token is accepted. It is flat where q is far off, hence the order in time.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        allowed: Tensor,
        draft_ids: Tensor,
        logprobs: Tensor,
        log_normalizers_07: Tensor,
        overlap_weight: float,
    ) -> Tensor:
        num_rows = len(hidden)
        weight_16 = weight.bfloat16()
        grad_hidden = torch.empty_like(hidden, dtype=torch.float32)
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32)
        total = 0.0
        for start in range(0, num_rows, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            states = hidden[rows].bfloat16()
            logits = F.linear(states, weight_16).float().add_(allowed)
            ids = draft_ids[rows].clamp_min(0)
            shared = draft_ids[rows] >= 0
            law = logprobs[rows].exp().mul_(shared)
            mass = law.sum(-1, keepdim=True)
            log_q = logits.log_softmax(-1)
            # Cross entropy: gradient S * q - P.
            scale = (1.0 - overlap_weight) / num_rows
            total += -scale * float((law * log_q.gather(1, ids)).nan_to_num_(0.0).sum())
            probs = log_q.exp()
            grad = probs * (mass * scale)
            grad.scatter_add_(1, ids, -scale * law)
            if overlap_weight > 0.0:
                for temperature in (1.0, 0.7):
                    scale = overlap_weight / (2 * num_rows)
                    if temperature == 1.0:
                        probs_t, law_t = probs, law
                    else:
                        probs_t = logits.div_(temperature).softmax(-1)
                        law_t = (logprobs[rows] / temperature - log_normalizers_07[rows, None]).exp() * shared
                    at_law = probs_t.gather(1, ids)
                    below = (at_law < law_t) & shared
                    total += scale * float(len(ids) - torch.minimum(at_law, law_t).mul(shared).sum())
                    # d(sum of min)/d logit_j = q_j * (below_j - sum of q over below) / T
                    below_mass = (at_law * below).sum(-1, keepdim=True)
                    scale /= temperature
                    grad.addcmul_(probs_t, below_mass, value=scale)
                    grad.scatter_add_(1, ids, -scale * at_law * below)
            grad_16 = grad.bfloat16()
            grad_hidden[rows] = F.linear(grad_16, weight_16.t()).float()
            grad_weight += (grad_16.t() @ states).float()
        ctx.save_for_backward(grad_hidden, grad_weight)
        return torch.tensor(total)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grads[0], grad_weight * grads[0], None, None, None, None, None


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _num_processes() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _average_gradients(model: DrafterModel, seconds: float) -> float:
    """Give every process the mean of all processes' gradients, as one message; return the mean of their clocks."""
    if _num_processes() == 1:
        return seconds
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    flat = torch.cat([*(gradient.flatten() for gradient in gradients), torch.tensor([seconds])])
    dist.all_reduce(flat)
    flat /= _num_processes()
    seconds = float(flat[-1])
    flat = flat[:-1]
    for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
    return seconds


def batch_loss(
    model: DrafterModel, batch: Batch, allowed: Tensor, overlap_weight: float, spelling_weight: float
) -> Tensor:
    """Loss of one batch: distillation where there is a law to learn, plain cross entropy at the inner positions."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model(batch.ids).flatten(0, 1)
    weight = model.embed_tokens.weight
    loss: Tensor = _DistillationLoss.apply(  # type: ignore[no-untyped-call]
        hidden[batch.at].float(),
        weight,
        allowed,
        batch.draft_ids,
        batch.logprobs,
        batch.log_normalizers_07,
        overlap_weight,
    )
    if len(batch.inner_at):
        logits = F.linear(hidden[batch.inner_at].float(), weight)
        following = batch.ids.flatten()[batch.inner_at + 1]
        spelling = F.cross_entropy(logits, following, reduction="sum") / len(batch.at)
        loss = loss + spelling_weight * spelling
    return loss


@torch.inference_mode()
def measure(
    model: DrafterModel, sequences: Sequences, allowed: Tensor, tokens_per_batch: int = 6000
) -> dict[str, float]:
    """Overlap and agreement on held-out conversations, from the kept top of the laws (a slight underestimate).

    With several processes every one measures its part and all get the whole result.

    `overlap_1`, `overlap_07`: mean of sum_t min(target, draft) over text sampled at that temperature;
    `greedy`: share of tokens of greedy text that the drafter's likeliest shared token hits; `inside_*`: target mass on
    shared tokens.
    """
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for chosen in plan_epoch(sequences, tokens_per_batch, 0)[_rank() :: _num_processes()]:
        batch = make_batch(sequences, chosen)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model(batch.ids).flatten(0, 1)[batch.at].float()
        logits = model.logits(hidden) + allowed
        ids, shared = batch.draft_ids.clamp_min(0), batch.draft_ids >= 0
        for temperature, name in ((1.0, "1"), (0.7, "07")):
            log_law = batch.logprobs / temperature
            if temperature != 1.0:
                log_law = log_law - batch.log_normalizers_07[:, None]
            law = _merged(log_law.exp() * shared, ids)
            draft = (logits / temperature).softmax(-1).gather(1, ids)
            mine = (batch.temperatures - temperature).abs() < 1e-3
            sums[f"overlap_{name}"] += float(torch.minimum(law, draft).mul(shared).sum(-1)[mine].sum())
            sums[f"inside_{name}"] += float(law.sum(-1)[mine].sum())
            counts[f"overlap_{name}"] += int(mine.sum())
            counts[f"inside_{name}"] += int(mine.sum())
        mine = batch.temperatures == 0
        sums["greedy"] += float((logits.argmax(-1) == batch.next_draft_ids)[mine].sum())
        sums["inside_greedy"] += float((batch.next_draft_ids >= 0)[mine].sum())
        counts["greedy"] += int(mine.sum())
        counts["inside_greedy"] += int(mine.sum())
    names = ["overlap_1", "overlap_07", "greedy", "inside_1", "inside_07", "inside_greedy"]
    table = torch.tensor([[sums[name], float(counts[name])] for name in names], dtype=torch.float64)
    if _num_processes() > 1:
        dist.all_reduce(table)
    return {name: float(total / max(count, 1.0)) for name, (total, count) in zip(names, table.tolist(), strict=True)}


def _merged(law: Tensor, ids: Tensor) -> Tensor:
    """A law [N, K] with the mass of ids that stand in a row several times at the first of them, 0 at the others."""
    same = ids[:, :, None] == ids[:, None, :]
    is_first = ~same.tril(-1).any(-1)
    return torch.einsum("nij,nj->ni", same.to(law.dtype), law) * is_first


def make_optimizers(model: DrafterModel, lr: float, embedding_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and gains."""
    matrices = [weight for weight in model.layers.parameters() if weight.dim() == 2]
    rest = [weight for weight in model.parameters() if not any(weight is other for other in matrices)]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.2, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=embedding_lr, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def schedule(progress: float) -> float:
    """Learning rate factor at `progress` in [0, 1]: short warm-up, then a cosine to 2 %."""
    warm = min(1.0, progress / 0.02) if progress < 0.02 else 1.0
    return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def overlap_weight_at(progress: float) -> float:
    """Weight of the overlap term: 0 at first, rising to 0.8 between 35 and 65 % of the training."""
    return 0.8 * min(1.0, max(0.0, (progress - 0.35) / 0.3))


def train(
    model: DrafterModel,
    grow: Callable[[], Sequences],
    heldout: dict[str, Sequences],
    allowed: Tensor,
    checkpoint: Path,
    *,
    num_steps: int,
    num_seconds: float,
    tokens_per_batch: int,
    lr: float,
    embedding_lr: float,
    seed: int,
    evaluate_every: int,
    own_vocabulary: bool,
    log: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Train for `num_steps` or `num_seconds`, whichever is over first, and return the held-out measurements.

    Goes on from `checkpoint` where it exists. With an own vocabulary every position counts alike, and the overlap,
    which the merged laws of first tokens do not have, is not trained for.

    `grow` is called before every epoch and returns the training set of that epoch. Several processes take one batch
    each and average their gradients, so a step of n processes is a step of n batches.
    """
    optimizers = make_optimizers(model, lr, embedding_lr)
    spelling_weight = 1.0 if own_vocabulary else _SPELLING_WEIGHT
    step, epoch, at, seconds, history = 0, 0, 0, 0.0, []
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=False):  # none after a refresh
            optimizer.load_state_dict(saved)
        step, epoch, at = state["step"], state["epoch"], state["at"]
        seconds, history = state["seconds"], state["history"]
        log(f"train: going on from step {step}")
    train_set = grow()
    plan = plan_epoch(train_set, tokens_per_batch, seed + epoch)
    started, running = time.monotonic() - seconds, 0.0
    rank, num_processes = _rank(), _num_processes()
    progress = max(step / num_steps, seconds / num_seconds)
    while progress < 1.0:
        if at + num_processes > len(plan):
            epoch, at = epoch + 1, 0
            train_set = grow()
            plan = plan_epoch(train_set, tokens_per_batch, seed + epoch)
        batch = make_batch(train_set, plan[at + rank])
        for optimizer, rate in zip(optimizers, (lr, embedding_lr), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * schedule(progress)
        overlap_weight = 0.0 if own_vocabulary else overlap_weight_at(progress)
        loss = batch_loss(model, batch, allowed, overlap_weight, spelling_weight)
        loss.backward()
        seconds = _average_gradients(model, time.monotonic() - started)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, at = step + 1, at + num_processes
        running = float(loss.detach()) if running == 0.0 else 0.98 * running + 0.02 * float(loss.detach())
        if step % 10 == 0 and rank == 0:
            log(f"train: step {step} epoch {epoch} loss {running:.4f} after {seconds:.0f} s ({progress:.1%})")
        # All processes see the same clock, or they would not stop at the same step.
        progress = max(step / num_steps, seconds / num_seconds)
        if step % evaluate_every == 0 or progress >= 1.0:
            found = {name: measure(model, sequences, allowed) for name, sequences in heldout.items()}
            history.append({"step": step, "epoch": epoch, "seconds": seconds, **found})
            if rank > 0:
                continue
            for name, values in found.items():
                log(f"  held out {name}: " + " ".join(f"{key} {value:.4f}" for key, value in values.items()))
            state = {
                "model": model.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                "step": step,
                "epoch": epoch,
                "at": at,
                "seconds": seconds,
                "history": history,
            }
            temporary = checkpoint.with_suffix(f".{os.getpid()}.tmp")
            torch.save(state, temporary)
            os.replace(temporary, checkpoint)
    return history
