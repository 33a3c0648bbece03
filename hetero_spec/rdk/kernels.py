# SPDX-License-Identifier: Apache-2.0
"""Redistributing drafter kernels (RDK): q~ = M^T q' for a row-stochastic V x V matrix M that is never written out.

q' is the drafter's law over the target's ids (token-level intersection: 0 where the drafter has no such token), q~ the
law that the draft is drawn from and verified with. Any M is lossless, since M knows nothing of the target's law at the
position. What differs is what a kernel costs and what it knows:

=====================  =========================================================  ==================
class                  row i of M                                                 cost of a row
=====================  =========================================================  ==================
`MixKernel`            (1 - lam_i) delta_i + lam_i prior                          O(V)
`DiagonalKernel`       (delta_i v_i / tau + 1) / (V + v_i / tau)                  O(V)
`SparseKernel`         (1 - a_i - b_i) delta_i + a_i prior + b_i S_i, S sparse    O(V + nnz)
`LowRankKernel`        (1 - lam) delta_i + lam (1 + U U_i / (n tau)) / V, >= 0    O(V n)
`DenseSoftmaxKernel`   softmax_j(Omega_ij / tau)                                  O(V^2), reference
=====================  =========================================================  ==================

The first three have one form (`MixtureKernel`). The ops draw from all but the last and verify them without a tensor
over V: low rank from n coefficients a row.

Source
------
Timor et al. 2025, arXiv 2506.03206: redistributing with an affinity softmax. The linear forms are first-order
expansions and mixtures of our own derivation; the paper's own linear formula was not available to us.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from hetero_spec.rdk import checks
from hetero_spec.rdk.checks import fail, finite
from hetero_spec.rdk.csr import entries_of, offsets_of, row_ids

if TYPE_CHECKING:
    import os

    from hetero_spec.ops._rdk import RdkFactors, RdkTensors

_MAX_DENSE_SIZE = 1 << 14  # 2 GiB of float64


class Kernel(ABC):
    """What every kernel knows.

    Attributes
    ----------
    kind : str
        "mix", "diagonal", "sparse", "low_rank" or "dense_softmax".
    vocab_size : int
        V, the width of the target's logits.
    target_sha256, drafter_sha256 : str or None
        Hashes of the tokenizers (`Vocabulary.sha256`) that it was made for, where they are known.
    calibration : dict
        Facts of how it was made, for people; JSON values. Saved with the kernel.
    clamped_mass : float
        Share of mass that was negative and set to 0 when the kernel was made; what it is a share of, says the class.

    Notes
    -----
    Rows that hold no mass (a drafter without a shared token) stay rows of zeros; rows with NaN give NaN.
    """

    kind: ClassVar[str]

    def __init__(self, vocab_size: int, target_sha256: str | None) -> None:
        self.vocab_size = vocab_size
        self.target_sha256 = target_sha256
        self.drafter_sha256: str | None = None
        self.calibration: dict[str, Any] = {}
        self.clamped_mass = 0.0

    def __repr__(self) -> str:
        """Return kind and width."""
        return f"{type(self).__name__}({self.vocab_size} ids)"

    @abstractmethod
    def tensors(self, device: torch.device | str) -> RdkTensors | RdkFactors:
        """The kernel's tensors on a device, as the ops take them; the same ones at every call."""

    @abstractmethod
    def redistribute(self, draft_probs: Tensor) -> Tensor:
        """Redistributed law q~ of every row.

        Parameters
        ----------
        draft_probs : float [rows, V]
            q', each row of total 1. float16 and bfloat16 are computed in float32.

        Returns
        -------
        probs : [rows, V], the dtype of draft_probs
        """

    @abstractmethod
    def draw(self, draft_probs: Tensor, uniforms: Tensor) -> Tensor:
        """Draw one token per row from q~ without writing q~ where the class can.

        Parameters
        ----------
        draft_probs : float [rows, V]
        uniforms : float64 [rows, 3]
            In [0, 1): for the token drawn from q', for whether it is replaced, for the replacement.

        Returns
        -------
        token_ids : int64 [rows]
            -1 for a row without mass or with NaN.
        """

    def prob(self, draft_probs: Tensor, token_ids: Tensor) -> Tensor:
        """Redistributed law at given tokens.

        Parameters
        ----------
        draft_probs : float [rows, V]
        token_ids : int [rows] or [rows, k], in [0, V)

        Returns
        -------
        probs : the shape of token_ids, the dtype of draft_probs
        """
        draft_probs, ids = self._at(draft_probs, token_ids)
        return self.redistribute(draft_probs).gather(1, ids).reshape(token_ids.shape)

    def moved_mass(self, draft_probs: Tensor) -> Tensor:
        """Mass that ends on another token: half of sum |q~ - q'|, in [0, 1]; [rows], the dtype of draft_probs."""
        checks.draft_rows(type(self).__name__, draft_probs, self.vocab_size)
        wide = _widened(draft_probs)
        return (0.5 * (self.redistribute(wide) - wide).abs().sum(1)).to(draft_probs.dtype)

    def matrix(self) -> Tensor:
        """M, float64 [V, V], for a small vocabulary: row i is q~ when the drafter is sure of token i."""
        if self.vocab_size > _MAX_DENSE_SIZE:
            fail(ValueError, "matrix", "vocab_size", f"at most {_MAX_DENSE_SIZE}", self.vocab_size)
        return self.redistribute(torch.eye(self.vocab_size, dtype=torch.float64))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kernel to one safetensors file, whole or not at all; `load_kernel` reads it."""
        from hetero_spec.rdk.kernel_file import save_kernel

        save_kernel(self, path)

    def _at(self, draft_probs: Tensor, token_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Check the arguments of `prob`; return ids as int64 [rows, k]."""
        what = f"{type(self).__name__}.prob"
        checks.draft_rows(what, draft_probs, self.vocab_size)
        if token_ids.is_floating_point() or token_ids.dtype == torch.bool:
            fail(TypeError, what, "token_ids", "whole numbers", token_ids.dtype)
        if token_ids.dim() not in (1, 2) or token_ids.shape[0] != draft_probs.shape[0]:
            fail(
                ValueError,
                what,
                "token_ids",
                f"of shape [{len(draft_probs)}] or [{len(draft_probs)}, any]",
                f"shape {list(token_ids.shape)}",
            )
        if token_ids.numel() and not (int(token_ids.min()) >= 0 and int(token_ids.max()) < self.vocab_size):
            fail(
                ValueError,
                what,
                "token_ids",
                f"in [0, {self.vocab_size})",
                f"{int(token_ids.min())}..{int(token_ids.max())}",
            )
        width = 1 if token_ids.dim() == 1 else token_ids.shape[1]
        return draft_probs, token_ids.long().reshape(len(draft_probs), width)

    def _uniforms(self, draft_probs: Tensor, uniforms: Tensor) -> None:
        what = f"{type(self).__name__}.draw"
        checks.draft_rows(what, draft_probs, self.vocab_size)
        if tuple(uniforms.shape) != (len(draft_probs), 3):
            fail(ValueError, what, "uniforms", f"of shape [{len(draft_probs)}, 3]", f"shape {list(uniforms.shape)}")


class MixtureKernel(Kernel):
    """Row i of M is (1 - a_i - b_i) delta_i + a_i r + b_i S_i: keep, leak to a prior, spread to neighbours.

    So q~(t) = (1 - a_t - b_t) q'(t) + s r(t) + sum_i b_i q'(i) S_it with the leaked mass s = sum_i a_i q'(i). Drawing
    needs no q~: i ~ q', then with probability a_i a token of r, with probability b_i one of S_i, else i itself.

    Parameters
    ----------
    vocab_size : int
    leak : float32 [V] or None
        a. None: 0.
    prior : float32 [V] or None
        r; None only without a leak.
    spread : float32 [V] or None
        b; a + b is at most 1 and b is 0 where a row of S is empty.
    rows : (int32 [V + 1], int32 [nnz], float32 [nnz]) or None
        S in CSR form: offsets, target ids rising within a row, weights of total 1 in a row.
    constant_leak : float
        a where it is the same for all tokens, else NaN.

    Notes
    -----
    Made through its subclasses, which check what they are given. Values are float32: the law that is verified is the
    law of these numbers, whose rows add up to 1 within rounding.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        leak: Tensor | None = None,
        prior: Tensor | None = None,
        spread: Tensor | None = None,
        rows: tuple[Tensor, Tensor, Tensor] | None = None,
        constant_leak: float = 0.0,
        target_sha256: str | None = None,
    ) -> None:
        super().__init__(vocab_size, target_sha256)
        self.leak, self.prior, self.spread = leak, prior, spread
        self.row_offsets: Tensor | None = None
        self.column_ids: Tensor | None = None
        self.weights: Tensor | None = None
        if rows is not None:
            self.row_offsets, self.column_ids, self.weights = rows
        self.constant_leak = constant_leak
        self._on_device: dict[torch.device, RdkTensors] = {}
        self._sums: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        # Now, not at the first call: that may be traced by torch.compile or torch.export, whose tensors hold nothing.
        self.tensors("cpu")

    def tensors(self, device: torch.device | str) -> RdkTensors:
        """The kernel on a device; see `RdkTensors`. Another device than the CPU: call it once before tracing."""
        device = torch.device(device)
        if device not in self._on_device:
            self._on_device[device] = self._make_tensors(device)
        return self._on_device[device]

    def _make_tensors(self, device: torch.device) -> RdkTensors:
        from hetero_spec.ops._rdk import RdkTensors

        def on(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.to(device)

        sources = self._transposed()
        return RdkTensors(
            leak=on(self.leak),
            prior=on(self.prior),
            prior_cumulative=on(None if self.prior is None else self.prior.double().cumsum(0)),
            spread=on(self.spread),
            row_offsets=on(self.row_offsets),
            column_ids=on(self.column_ids),
            weights=on(self.weights),
            source_offsets=on(sources[0]),
            source_ids=on(sources[1]),
            source_weights=on(sources[2]),
            constant_leak=self.constant_leak,
        ).indexed()

    def _transposed(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """S by target token: offsets, source ids rising within a target, weights; None without S."""
        if self.row_offsets is None or self.column_ids is None or self.weights is None:
            return None, None, None
        order = torch.argsort(self.column_ids, stable=True)
        counts = torch.bincount(self.column_ids, minlength=self.vocab_size)
        return offsets_of(counts), row_ids(self.row_offsets)[order].to(torch.int32), self.weights[order]

    def leaked_mass(self, draft_probs: Tensor) -> Tensor:
        """Mass that goes to the prior, s = sum_i a_i q'(i); [rows], the dtype of draft_probs."""
        checks.draft_rows(type(self).__name__, draft_probs, self.vocab_size)
        wide = _widened(draft_probs)
        leak = self.tensors(wide.device).leak
        return (wide.new_zeros(len(wide)) if leak is None else wide @ leak.to(wide.dtype)).to(draft_probs.dtype)

    def redistribute(self, draft_probs: Tensor) -> Tensor:
        """Redistributed law q~ of every row; see `Kernel.redistribute`. With a = b = 0 the same bits come back."""
        checks.draft_rows(type(self).__name__, draft_probs, self.vocab_size)
        own = self.tensors(draft_probs.device)
        wide = _widened(draft_probs)
        probs = wide * _kept(own, wide)
        if own.leak is not None and own.prior is not None:
            probs += self.leaked_mass(wide)[:, None] * own.prior.to(wide.dtype)
        if own.spread is not None and own.weights is not None and len(own.weights):
            flow = (wide * own.spread.to(wide.dtype)).T
            probs += torch.sparse.mm(self._sources(own, wide), flow).T
        return probs.to(draft_probs.dtype)

    def prob(self, draft_probs: Tensor, token_ids: Tensor) -> Tensor:
        """Redistributed law at given tokens, without the law elsewhere; see `Kernel.prob`."""
        draft_probs, ids = self._at(draft_probs, token_ids)
        own = self.tensors(draft_probs.device)
        wide = _widened(draft_probs)
        probs = wide.gather(1, ids) * _kept(own, wide).expand(self.vocab_size)[ids]
        if own.leak is not None and own.prior is not None:
            probs += self.leaked_mass(wide)[:, None] * own.prior.to(wide.dtype)[ids]
        if own.source_offsets is not None:
            assert own.spread is not None and own.source_ids is not None and own.source_weights is not None
            flat = ids.reshape(-1)
            entries, places = entries_of(own.source_offsets.long(), flat)
            sources = own.source_ids.long()[entries]
            row = places // max(1, ids.shape[1])
            flow = wide[row, sources] * own.spread.to(wide.dtype)[sources] * own.source_weights.to(wide.dtype)[entries]
            probs += wide.new_zeros(flat.shape).index_add_(0, places, flow).reshape(ids.shape)
        return probs.to(draft_probs.dtype).reshape(token_ids.shape)

    def draw(self, draft_probs: Tensor, uniforms: Tensor) -> Tensor:
        """Draw one token per row as a mixture; see `Kernel.draw`."""
        self._uniforms(draft_probs, uniforms)
        own = self.tensors(draft_probs.device)
        tokens = _invert(draft_probs, uniforms[:, 0])
        for row, source in enumerate(tokens.tolist()):
            if source < 0:
                continue
            leak = 0.0 if own.leak is None else float(own.leak[source])
            spread = 0.0 if own.spread is None else float(own.spread[source])
            if float(uniforms[row, 1]) < leak:
                assert own.prior is not None
                tokens[row] = _invert(own.prior[None], uniforms[row, 2:])[0]
            elif float(uniforms[row, 1]) < leak + spread:
                assert own.row_offsets is not None and own.column_ids is not None and own.weights is not None
                start, end = own.row_offsets[source : source + 2].tolist()
                place = int(_invert(own.weights[None, start:end], uniforms[row, 2:])[0])
                tokens[row] = own.column_ids[start + place]
        return tokens

    def _sources(self, own: RdkTensors, like: Tensor) -> Tensor:
        """S transposed as a sparse matrix [target, source]."""
        key = (like.device, like.dtype)
        if key not in self._sums:
            assert own.source_offsets is not None and own.source_ids is not None and own.source_weights is not None
            self._sums[key] = torch.sparse_coo_tensor(
                torch.stack([row_ids(own.source_offsets), own.source_ids.long()]),
                own.source_weights.to(like.dtype),
                (self.vocab_size, self.vocab_size),
                check_invariants=False,
                is_coalesced=True,
            )
        return self._sums[key]


class MixKernel(MixtureKernel):
    """Each token gives a share of its mass to one prior: q~ = (1 - lam) q' + s prior, s = sum_i lam_i q'(i).

    Parameters
    ----------
    lam : float, or float [V]
        Share in [0, 1], one for all tokens or one per token. 0 is token-level intersection, bit for bit.
    prior : float [V]
        A law over the target's ids, total 1: the mean next-token law of the target, say.
    target_sha256 : str, optional
        Hash of the target's tokenizer.

    Raises
    ------
    ValueError   lam outside [0, 1]; NaN, negative or total other than 1 in the prior; widths that disagree

    Examples
    --------
    >>> kernel = MixKernel(0.5, torch.tensor([0.0, 0.5, 0.5]))
    >>> kernel.redistribute(torch.tensor([[1.0, 0.0, 0.0]]))
    tensor([[0.5000, 0.2500, 0.2500]])
    """

    kind = "mix"

    def __init__(self, lam: float | Tensor, prior: Tensor, *, target_sha256: str | None = None) -> None:
        what = type(self).__name__
        own_prior = checks.law(what, "prior", prior)
        leak = checks.share(what, "lam", lam, len(own_prior))
        super().__init__(
            len(own_prior),
            leak=leak,
            prior=own_prior,
            constant_leak=constant_of(leak),
            target_sha256=target_sha256,
        )

    @classmethod
    def outside(
        cls, lam: float | Tensor, prior: Tensor, target_to_draft_ids: Tensor, *, target_sha256: str | None = None
    ) -> MixKernel:
        """Mix with the prior restricted to what the drafter doesn't have (target_to_draft_ids [V] is -1)."""
        weights = checks.non_negative(cls.__name__, "prior", checks.vector(cls.__name__, "prior", prior))
        ids = checks.as_tensor(cls.__name__, "target_to_draft_ids", target_to_draft_ids, torch.int64)
        if ids.shape != weights.shape:
            fail(
                ValueError,
                cls.__name__,
                "target_to_draft_ids",
                f"of shape {list(weights.shape)}",
                f"shape {list(ids.shape)}",
            )
        weights = torch.where(ids < 0, weights, 0.0)
        if float(weights.sum()) <= 0.0:
            fail(ValueError, cls.__name__, "prior", "positive on some token that the drafter lacks", "0 on all of them")
        return cls(lam, weights / weights.sum(), target_sha256=target_sha256)


class DiagonalKernel(MixtureKernel):
    """First-order softmax of a diagonal affinity: a token keeps the more, the more its target probability varies.

    softmax_j(v_i delta_ij / tau) to first order is (1 + v_i delta_ij / tau) / (V + v_i / tau): keep
    1 - a_i = (v_i / tau) / (V + v_i / tau) and spread a_i = V / (V + v_i / tau) evenly over the vocabulary.

    Parameters
    ----------
    variance : float [V]
        v, variance of each token's probability over a corpus of target laws.
    tau : float
        Affinity temperature, positive. Larger moves more; values far below v_i / V move little.
    target_sha256 : str, optional

    Raises
    ------
    ValueError   NaN or negative variance, tau not positive
    """

    kind = "diagonal"

    def __init__(self, variance: Tensor, tau: float, *, target_sha256: str | None = None) -> None:
        what = type(self).__name__
        self.variance = checks.non_negative(what, "variance", checks.vector(what, "variance", variance))
        self.tau = checks.temperature(what, tau)
        size = len(self.variance)
        leak = (size / (size + self.variance / self.tau)).float()
        super().__init__(
            size,
            leak=leak,
            prior=torch.full((size,), 1.0 / size, dtype=torch.float32),
            constant_leak=constant_of(leak),
            target_sha256=target_sha256,
        )


class LowRankKernel(Kernel):
    """First-order softmax of a covariance of n target laws: q~ = clamp((1 + U U^T q' / (n tau)) / V, 0) / Z.

    The columns of U are the laws less their mean, so each adds up to 0 and, as long as nothing is clamped, Z is 1. With
    lam below 1 the rest of q' stays: q~ = (1 - lam) q' + lam (...).

    Parameters
    ----------
    laws : float [n, V]
        Target laws at n positions of a text, each of total 1; n at least 2.
    tau : float
        Affinity temperature, positive. The expansion holds while the covariance is above -tau.
    lam : float
        Share of the redistributed law, in [0, 1].
    target_sha256 : str, optional

    Attributes
    ----------
    factors : float32 [V, n]
        U.
    clamped_mass : float
        Mean over the n laws as draft laws of the mass that was negative, before Z, as a share of 1.
    scale : float
        1 / (n tau).

    Raises
    ------
    ValueError   NaN, negative mass, a law whose total isn't 1, fewer than two laws, tau or lam out of range

    Notes
    -----
    With clamping the law isn't linear in q'; it is still a function of the drafter's side only, so lossless.
    """

    kind = "low_rank"

    def __init__(self, laws: Tensor, tau: float, lam: float = 1.0, *, target_sha256: str | None = None) -> None:
        what = type(self).__name__
        rows = checks.as_tensor(what, "laws", laws, torch.float64)
        if rows.dim() != 2 or rows.shape[0] < 2:
            fail(ValueError, what, "laws", "of shape [n, V] with n at least 2", f"shape {list(rows.shape)}")
        for i in range(len(rows)):
            rows[i] = checks.law(what, f"laws[{i}]", rows[i]).double()
        self._set((rows - rows.mean(0)).T.float().contiguous(), tau, lam, target_sha256)
        self.clamped_mass = float(self.clamped_mass_of(rows.float()).mean())

    @classmethod
    def from_factors(
        cls, factors: Tensor, tau: float, lam: float = 1.0, *, target_sha256: str | None = None
    ) -> LowRankKernel:
        """Make it from U, float [V, n]: centred laws, or a smaller basis with the same U U^T / n.

        Raises
        ------
        ValueError   NaN, or a column whose total isn't 0
        """
        own = checks.as_tensor(cls.__name__, "factors", factors, torch.float32)
        if own.dim() != 2 or min(own.shape) < 1:
            fail(ValueError, cls.__name__, "factors", "of shape [V, n]", f"shape {list(own.shape)}")
        finite(cls.__name__, "factors", own)
        totals = own.double().sum(0)
        worst = int(totals.abs().argmax())
        if float(totals[worst].abs()) > checks.SUM_TOLERANCE:
            fail(
                ValueError, cls.__name__, "factors", "of total 0 in each column", f"{float(totals[worst]):g} in {worst}"
            )
        kernel = cls.__new__(cls)
        kernel._set(own, tau, lam, target_sha256)
        return kernel

    def _set(self, factors: Tensor, tau: float, lam: float, target_sha256: str | None) -> None:
        super().__init__(factors.shape[0], target_sha256)
        what = type(self).__name__
        self.factors = factors
        self.tau = checks.temperature(what, tau)
        self.lam = checks.scalar_share(what, "lam", lam)
        self.scale = 1.0 / (factors.shape[1] * self.tau)
        if not self.scale <= torch.finfo(torch.float32).max:
            fail(ValueError, what, "tau", "large enough for 1 / (n tau) to be finite in float32", tau)
        self._on_device: dict[torch.device, RdkFactors] = {}

    def tensors(self, device: torch.device | str) -> RdkFactors:
        """The kernel on a device; see `RdkFactors`."""
        from hetero_spec.ops._rdk import RdkFactors

        device = torch.device(device)
        if device not in self._on_device:
            self._on_device[device] = RdkFactors(self.factors.to(device), self.scale, self.lam)
        return self._on_device[device]

    def _first_order(self, draft_probs: Tensor) -> Tensor:
        """(1 + U U^T q' / (n tau)) / V, not yet clamped."""
        factors = self.tensors(draft_probs.device).factors.to(draft_probs.dtype)
        return (1.0 + (draft_probs @ factors * self.scale) @ factors.T) / self.vocab_size

    def clamped_mass_of(self, draft_probs: Tensor) -> Tensor:
        """Mass that was negative and is set to 0 for each draft law, as a share of 1; [rows]."""
        checks.draft_rows(type(self).__name__, draft_probs, self.vocab_size)
        return (-self._first_order(_widened(draft_probs))).clamp_(min=0.0).sum(1).to(draft_probs.dtype)

    def _clamped_law(self, wide: Tensor) -> Tensor:
        law = self._first_order(wide).clamp_(min=0.0)
        return law / law.sum(1, keepdim=True)

    def redistribute(self, draft_probs: Tensor) -> Tensor:
        """Redistributed law q~ of every row; see `Kernel.redistribute`. With lam = 0 the same bits come back."""
        checks.draft_rows(type(self).__name__, draft_probs, self.vocab_size)
        wide = _widened(draft_probs)
        probs = (1.0 - self.lam) * wide + self.lam * self._clamped_law(wide)
        return torch.where(wide.sum(1, keepdim=True) == 0.0, wide, probs).to(draft_probs.dtype)

    def draw(self, draft_probs: Tensor, uniforms: Tensor) -> Tensor:
        """Draw one token per row; the replaced ones from the law itself, by inverse CDF. See `Kernel.draw`."""
        self._uniforms(draft_probs, uniforms)
        tokens = _invert(draft_probs, uniforms[:, 0])
        replaced = (tokens >= 0) & (uniforms[:, 1] < self.lam)
        if bool(replaced.any()):
            law = self._clamped_law(_widened(draft_probs[replaced]))
            tokens[replaced] = _invert(law, uniforms[replaced, 2])
        return tokens


class DenseSoftmaxKernel(Kernel):
    """The exact kernel of the paper, M_ij = softmax_j(Omega_ij / tau), in float64: a reference for small vocabularies.

    Parameters
    ----------
    affinity : float [V, V]
        Omega, the covariance of target next-token laws for one. V at most 16,384.
    tau : float
        Positive. With covariances of probabilities, M is near uniform unless it is tiny.
    target_sha256 : str, optional

    Raises
    ------
    ValueError   not square, NaN, too large, tau not positive
    """

    kind = "dense_softmax"

    def __init__(self, affinity: Tensor, tau: float, *, target_sha256: str | None = None) -> None:
        what = type(self).__name__
        self.affinity = checks.as_tensor(what, "affinity", affinity, torch.float64)
        if self.affinity.dim() != 2 or self.affinity.shape[0] != self.affinity.shape[1] or not len(self.affinity):
            fail(ValueError, what, "affinity", "of shape [V, V]", f"shape {list(self.affinity.shape)}")
        if len(self.affinity) > _MAX_DENSE_SIZE:
            fail(ValueError, what, "affinity", f"at most {_MAX_DENSE_SIZE} ids wide", len(self.affinity))
        finite(what, "affinity", self.affinity)
        self.tau = checks.temperature(what, tau)
        super().__init__(len(self.affinity), target_sha256)
        self._matrix = torch.softmax(self.affinity / self.tau, dim=1)

    @classmethod
    def from_laws(cls, laws: Tensor, tau: float, *, target_sha256: str | None = None) -> DenseSoftmaxKernel:
        """Make it from the covariance of n target laws, float [n, V]."""
        rows = checks.as_tensor(cls.__name__, "laws", laws, torch.float64)
        if rows.dim() != 2 or rows.shape[0] < 2:
            fail(ValueError, cls.__name__, "laws", "of shape [n, V] with n at least 2", f"shape {list(rows.shape)}")
        centred = rows - rows.mean(0)
        return cls(centred.T @ centred / len(rows), tau, target_sha256=target_sha256)

    def tensors(self, device: torch.device | str) -> RdkTensors:
        """It has no form that the ops take."""
        raise NotImplementedError("DenseSoftmaxKernel: it is a reference with `redistribute` only; no op takes it")

    def redistribute(self, draft_probs: Tensor) -> Tensor:
        """Redistributed law q~ of every row, computed in float64; see `Kernel.redistribute`."""
        checks.draft_rows(type(self).__name__, draft_probs, self.vocab_size)
        return (draft_probs.double() @ self._matrix.to(draft_probs.device)).to(draft_probs.dtype)

    def matrix(self) -> Tensor:
        """M, float64 [V, V]."""
        return self._matrix.clone()

    def draw(self, draft_probs: Tensor, uniforms: Tensor) -> Tensor:
        """Draw a source from q', then a token from its row; the middle uniform isn't used. See `Kernel.draw`."""
        self._uniforms(draft_probs, uniforms)
        tokens = _invert(draft_probs, uniforms[:, 0])
        found = tokens >= 0
        tokens[found] = _invert(self._matrix.to(tokens.device)[tokens[found]], uniforms[found, 2])
        return tokens


def _widened(draft_probs: Tensor) -> Tensor:
    """The dtype to compute in: float64 stays, all else is float32."""
    return draft_probs if draft_probs.dtype == torch.float64 else draft_probs.float()


def _kept(own: RdkTensors, like: Tensor) -> Tensor:
    """1 - a - b, in float32 as the ops have it, then in the dtype of the rows; one number where nothing moves."""
    kept = torch.ones(1, device=like.device)
    for moved in (own.leak, own.spread):
        if moved is not None:
            kept = kept - moved
    return kept.clamp(min=0.0).to(like.dtype)


def _invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """First id of each row whose cumulative weight exceeds uniform * total, in float64; -1 without positive mass."""
    cumulative = weights.double().cumsum(1)
    total = cumulative[:, -1]
    wanted = (uniforms.to(cumulative) * total)[:, None]
    ids = torch.searchsorted(cumulative, wanted, right=True)[:, 0]
    # uniform * total can round up to the total; then the last id that has any weight is meant.
    last = weights.shape[1] - 1 - (weights > 0.0).flip(1).to(torch.uint8).argmax(1)
    return torch.where(total > 0.0, torch.minimum(ids, last), -1)


def constant_of(leak: Tensor) -> float:
    """The number that a leak is for all tokens, NaN if there is no such number."""
    return float(leak[0]) if bool((leak == leak[0]).all()) else math.nan
