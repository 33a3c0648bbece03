# SPDX-License-Identifier: Apache-2.0
"""The reduced vocabularies of EAGLE-3 checkpoints, to and from absolute ids.

Such a checkpoint has a drafter head of its own width and two buffers: `d2t`, int [Vd], where draft id d stands for
target id d + d2t[d] (an offset, not an id), and `t2d`, bool [V], whether the drafter has a target token. This package
stores absolute ids only; an offset table taken for ids would map almost every draft to a wrong token without an error,
so both directions are spelt out here.

Source
------
Li et al. 2025, arXiv 2503.01840 (EAGLE-3); the buffers of its published checkpoints.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hetero_spec.rdk import checks
from hetero_spec.rdk.checks import fail, in_range


def from_eagle_d2t(d2t: Tensor, target_vocab_size: int, t2d: Tensor | None = None) -> Tensor:
    """Absolute ids of an offset table.

    Parameters
    ----------
    d2t : int [Vd]
        Offsets: target id = draft id + d2t[draft id].
    target_vocab_size : int
    t2d : bool [V], optional
        The checkpoint's mask, to be compared with: both must name the same tokens.

    Returns
    -------
    draft_to_target_ids : int32 [Vd]

    Raises
    ------
    TypeError    d2t isn't of whole numbers, t2d isn't bool
    ValueError   an id out of range (absolute ids instead of offsets, mostly), two draft ids for one target id, a mask
                 of other tokens

    Examples
    --------
    >>> from_eagle_d2t(torch.tensor([0, 2, 2]), 6).tolist()
    [0, 3, 4]
    """
    what = "from_eagle_d2t"
    offsets = _ids(what, "d2t", d2t)
    ids = _checked(what, "draft id + d2t", offsets + torch.arange(len(offsets)), target_vocab_size)
    if t2d is not None:
        mask = _mask(what, t2d)
        if len(mask) != target_vocab_size:
            fail(ValueError, what, "t2d", f"of shape [{target_vocab_size}]", f"shape {list(mask.shape)}")
        own = to_eagle_t2d(ids, target_vocab_size)
        if not own.equal(mask):
            differing = int((own != mask).sum())
            fail(ValueError, what, "t2d", "true exactly at the target ids of d2t", f"{differing} other entries")
    return ids.to(torch.int32)


def to_eagle_d2t(draft_to_target_ids: Tensor, target_vocab_size: int) -> Tensor:
    """Offset table of absolute ids.

    Parameters
    ----------
    draft_to_target_ids : int [Vd]
        In [0, target_vocab_size), none twice. -1 (not shared) can't be said in offsets: leave such ids out of the head.
    target_vocab_size : int

    Returns
    -------
    d2t : int64 [Vd]

    Raises
    ------
    TypeError, ValueError   as `from_eagle_d2t`
    """
    ids = _ids("to_eagle_d2t", "draft_to_target_ids", draft_to_target_ids)
    _checked("to_eagle_d2t", "draft_to_target_ids", ids, target_vocab_size)
    return ids - torch.arange(len(ids))


def from_eagle_t2d(t2d: Tensor) -> Tensor:
    """Absolute ids of a mask: draft id k is the k-th target token that it names.

    Parameters
    ----------
    t2d : bool [V]

    Returns
    -------
    draft_to_target_ids : int32 [number of True], rising

    Raises
    ------
    TypeError    not bool
    ValueError   not one-dimensional, or True nowhere
    """
    mask = _mask("from_eagle_t2d", t2d)
    if not bool(mask.any()):
        fail(ValueError, "from_eagle_t2d", "t2d", "true at one target id or more", "none")
    return mask.nonzero()[:, 0].to(torch.int32)


def to_eagle_t2d(draft_to_target_ids: Tensor, target_vocab_size: int) -> Tensor:
    """Mask of the target tokens that a drafter has: bool [V]. -1 entries are left out."""
    ids = _ids("to_eagle_t2d", "draft_to_target_ids", draft_to_target_ids)
    _checked("to_eagle_t2d", "draft_to_target_ids", ids[ids != -1], target_vocab_size)
    mask = torch.zeros(target_vocab_size, dtype=torch.bool)
    mask[ids[ids != -1]] = True
    return mask


def _ids(what: str, argument: str, value: Tensor) -> Tensor:
    ids = checks.as_tensor(what, argument, value, torch.int64)
    if ids.dim() != 1 or not len(ids):
        fail(ValueError, what, argument, "of shape [Vd]", f"shape {list(ids.shape)}")
    return ids


def _mask(what: str, value: Tensor) -> Tensor:
    mask = torch.as_tensor(value).cpu()
    if mask.dtype != torch.bool:
        fail(TypeError, what, "t2d", "bool", mask.dtype)
    if mask.dim() != 1:
        fail(ValueError, what, "t2d", "of shape [V]", f"shape {list(mask.shape)}")
    return mask


def _checked(what: str, argument: str, ids: Tensor, target_vocab_size: int) -> Tensor:
    in_range(what, argument, ids, target_vocab_size)
    order = ids.sort().values
    if bool((order.diff() == 0).any()):
        twice = int(order[:-1][order.diff() == 0][0])
        fail(ValueError, what, argument, "different for every draft id", f"target id {twice} more than once")
    return ids
