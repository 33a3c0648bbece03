// SPDX-License-Identifier: Apache-2.0
#include "common/launch.cuh"
#include "common/mask.cuh"
#include "common/workspace.cuh"
#include "rejection_sample/rejection_sample.cuh"

namespace hetero_spec {
namespace {

struct Workspace {
  RejectionSampleArguments arguments;
  float* leaked_mass;  // null where nothing has to be made
  LowRankSpace low_rank;
  uint32_t* mask;
  int32_t* num_ids;
  void* zeroed;  // cleared before the kernels, in one piece
  std::size_t zeroed_bytes;
  std::size_t bytes;
};

bool makes_draft_laws(const RejectionSampleCuda& call) {
  return call.draft_logits.data != nullptr && call.draft_stats == nullptr;
}

bool sums_leaked_mass(const RejectionSampleCuda& call) {
  return call.draft_logits.data != nullptr && call.draft_leaked_mass == nullptr &&
         call.kernel.needs_leaked_mass();
}

RdkForm form_of(const RejectionSampleCuda& call) {
  return call.draft_logits.data != nullptr ? call.kernel.form() : kAsDrawn;
}

// Residuals of a request whose masses are kept at once.
int64_t num_residuals(const RejectionSampleCuda& call) {
  return call.block_rule && call.ragged.max_draft_tokens > 1 ? call.ragged.max_draft_tokens : 1;
}

Workspace lay_out(const RejectionSampleCuda& call, void* base) {
  const int64_t batch = call.ragged.batch_size, tokens = call.ragged.num_tokens;
  const int64_t rows = tokens + batch, chunks = num_chunks(call.target_logits.vocab_size);
  const bool makes_laws = makes_draft_laws(call);
  const bool makes_mask = makes_laws && call.target_to_draft_ids != nullptr;
  WorkspaceLayout layout(base);
  Workspace out{};
  RejectionSampleArguments& arguments = out.arguments;
  arguments.call = call;
  // Counters and the mask first, next to each other.
  const std::size_t zeroed_from = layout.size();
  arguments.row_tickets = layout.take<unsigned>(rows);
  arguments.draw_tickets = layout.take<unsigned>(batch);
  arguments.draft_tickets = layout.take<unsigned>(makes_laws ? tokens : 0);
  out.num_ids = layout.take<int32_t>(1);
  out.mask = layout.take<uint32_t>(makes_mask ? mask_words_of(call.draft_logits.vocab_size) : 0);
  out.zeroed = arguments.row_tickets;
  out.zeroed_bytes = layout.size() - zeroed_from;
  arguments.stop_at = layout.take<int32_t>(batch);
  arguments.target_sums = layout.take<ChunkSum>(rows * chunks);
  arguments.target_stats = layout.take<RowStats>(rows);
  arguments.tests = layout.take<RowTest>(rows);
  arguments.masses = layout.take<double>(batch * num_residuals(call) * chunks);
  arguments.draft_stats = const_cast<RowStats*>(call.draft_stats);
  if (makes_laws) {
    arguments.draft_sums = layout.take<ChunkSum>(tokens * num_chunks(call.draft_logits.vocab_size));
    arguments.draft_stats = layout.take<RowStats>(tokens);
  }
  arguments.leaked_mass = call.draft_leaked_mass;
  if (sums_leaked_mass(call)) {
    out.leaked_mass = layout.take<float>(tokens);
    arguments.leaked_mass = out.leaked_mass;
  }
  if (form_of(call) == kLowRank) {
    const RdkFactors& factors = call.kernel.low_rank;
    arguments.draft_probs = layout.take<float>(tokens);
    if (call.draft_leaked_mass == nullptr) {
      out.leaked_mass = layout.take<float>(tokens * factors.row_width());
      arguments.leaked_mass = out.leaked_mass;
      out.low_rank = take_low_rank_space(layout, factors, tokens, call.kernel.vocab_size, false);
    }
  }
  if (makes_mask) {
    arguments.mask = out.mask;
    arguments.num_ids = out.num_ids;
  }
  out.bytes = layout.size();
  return out;
}

cudaError_t launch_draft_laws(const Workspace& space, cudaStream_t stream) {
  const RejectionSampleArguments& arguments = space.arguments;
  const RejectionSampleCuda& call = arguments.call;
  if (arguments.mask != nullptr) {
    const cudaError_t error = gpu::launch(
        dim3(blocks_for(call.target_logits.vocab_size, kBlockThreads)), dim3(kBlockThreads), 0,
        stream, mask_from_inverse_map_kernel<kBlockThreads>, call.target_to_draft_ids,
        call.target_logits.vocab_size, call.draft_logits.vocab_size, space.mask, space.num_ids);
    if (error != cudaSuccess) return error;
  }
  const dim3 grid = row_grid(blocks_for(num_chunks(call.draft_logits.vocab_size), kBlockWarps),
                             call.ragged.batch_size * call.ragged.max_draft_tokens);
  return dispatch(call.draft_logits.dtype, may_truncate(call.params),
                  [&](auto type, auto truncate) {
                    using T = typename decltype(type)::type;
                    return gpu::launch(grid, dim3(kBlockThreads), 0, stream,
                                       draft_laws_kernel<T, decltype(truncate)::value>, arguments);
                  });
}

// Coefficients where they are not given, then the draft tokens' probabilities.
cudaError_t launch_low_rank(const Workspace& space, cudaStream_t stream) {
  const RejectionSampleArguments& arguments = space.arguments;
  const RejectionSampleCuda& call = arguments.call;
  const int64_t places = call.ragged.batch_size * call.ragged.max_draft_tokens;
  if (call.draft_leaked_mass == nullptr) {
    const cudaError_t error = launch_low_rank_rows(
        {call.kernel.low_rank, call.kernel.vocab_size, space.low_rank, space.leaked_mass, nullptr},
        DraftedRows{arguments}, places, stream);
    if (error != cudaSuccess) return error;
  }
  return gpu::launch(row_grid(1, places), dim3(kWarpLanes), 0, stream,
                     low_rank_probs_kernel<kWarpLanes>, arguments);
}

}  // namespace

std::size_t rejection_sample_cuda_workspace(const RejectionSampleCuda& call) {
  return lay_out(call, nullptr).bytes;
}

cudaError_t rejection_sample_cuda(const RejectionSampleCuda& call, void* workspace,
                                  cudaStream_t stream) {
  const int64_t batch = call.ragged.batch_size;
  if (batch == 0) return cudaSuccess;
  const Workspace space = lay_out(call, workspace);
  const RejectionSampleArguments& arguments = space.arguments;
  cudaError_t error = cudaMemsetAsync(space.zeroed, 0, space.zeroed_bytes, stream);
  if (error != cudaSuccess) return error;
  constexpr int kBeyondAnyPosition = 0x7f;  // in every byte of an int32
  error = cudaMemsetAsync(arguments.stop_at, kBeyondAnyPosition,
                          static_cast<std::size_t>(batch) * sizeof(int32_t), stream);
  if (error != cudaSuccess) return error;
  const bool has_drafts = call.ragged.max_draft_tokens > 0 && call.ragged.num_tokens > 0;
  if (makes_draft_laws(call) && has_drafts) {
    error = launch_draft_laws(space, stream);
    if (error != cudaSuccess) return error;
  }
  if (sums_leaked_mass(call) && has_drafts) {
    error = gpu::launch(dim3(static_cast<unsigned>(batch * call.ragged.max_draft_tokens)),
                        dim3(kBlockThreads), 0, stream, leaked_mass_kernel<kBlockThreads>,
                        arguments, space.leaked_mass);
    if (error != cudaSuccess) return error;
  }
  const RdkForm form = form_of(call);
  if (form == kLowRank && has_drafts) {
    error = launch_low_rank(space, stream);
    if (error != cudaSuccess) return error;
  }
  const std::size_t shared_bytes = form == kLowRank ? shared_kept_bytes(call.kernel.low_rank) : 0;
  const unsigned groups = blocks_for(num_chunks(call.target_logits.vocab_size), kBlockWarps);
  const dim3 rows = row_grid(groups, batch * (call.ragged.max_draft_tokens + 1));
  const dim3 residuals = row_grid(groups, batch * num_residuals(call));
  return dispatch(
      call.target_logits.dtype, may_truncate(call.params), [&](auto type, auto truncate) {
        using T = typename decltype(type)::type;
        const cudaError_t failed =
            gpu::launch(rows, dim3(kBlockThreads), 0, stream,
                        target_rows_kernel<T, decltype(truncate)::value>, arguments);
        if (failed != cudaSuccess) return failed;
        const auto draw = [&](auto compiled_form) {
          constexpr int kForm = decltype(compiled_form)::value;
          return gpu::launch(residuals, dim3(kBlockThreads), shared_bytes, stream,
                             call.block_rule ? block_rule_kernel<T, kForm> : draw_kernel<T, kForm>,
                             arguments);
        };
        return with_form(form, draw);
      });
}

}  // namespace hetero_spec
