// SPDX-License-Identifier: Apache-2.0
#include "rejection_sample/rejection_sample_cuda.h"
#include "simt/python/rdk_kernel.h"

namespace hetero_spec::simt_python {
namespace {

py::tuple rejection_sample(const py::array& target_logits, int dtype,
                           const py::array& draft_token_ids, const py::array& cu_num_draft_tokens,
                           int64_t max_draft_tokens, const OptionalArray& draft_logits,
                           int draft_dtype, const OptionalArray& draft_stats,
                           const OptionalArray& target_to_draft_ids, const Parameters& parameters,
                           const OptionalArray& seeds, const OptionalArray& positions,
                           const OptionalArray& uniform_samples, bool block_rule,
                           const KernelArrays& kernel, const OptionalArray& draft_leaked_mass) {
  DeviceMemory memory;
  const int64_t batch = cu_num_draft_tokens.shape(0) - 1;
  RejectionSampleCuda call{};
  call.ragged = {memory.upload<int32_t>("cu_num_draft_tokens", cu_num_draft_tokens),
                 memory.upload<int32_t>("draft_token_ids", draft_token_ids), batch,
                 draft_token_ids.shape(0), max_draft_tokens};
  call.target_logits = {memory.upload<void>("target_logits", target_logits), DType(dtype),
                        row_stride(target_logits), target_logits.shape(1)};
  if (draft_logits.has_value()) {
    const void* data = memory.upload<void>("draft_logits", *draft_logits);
    // No draft token at all: the rows do not exist, yet the drafts are not one-hot.
    if (data == nullptr) data = memory.allocate("draft_logits", 1);
    call.draft_logits = {data, DType(draft_dtype), row_stride(*draft_logits),
                         draft_logits->shape(1)};
  }
  call.draft_stats =
      reinterpret_cast<const RowStats*>(memory.upload<float>("draft_stats", draft_stats));
  call.target_to_draft_ids = memory.upload<int32_t>("map", target_to_draft_ids);
  call.kernel = upload_kernel(memory, kernel, target_logits.shape(1));
  call.draft_leaked_mass = memory.upload<float>("draft_leaked_mass", draft_leaked_mass);
  call.params = memory.upload(parameters);
  call.uniforms = {memory.upload<double>("uniform_samples", uniform_samples),
                   memory.upload<int64_t>("seeds", seeds),
                   memory.upload<int64_t>("positions", positions)};
  call.block_rule = block_rule;
  Output<int32_t> ids(memory, "output_token_ids", {batch, max_draft_tokens + 1});
  Output<int32_t> accepted(memory, "num_accepted_tokens", {batch});
  Output<int32_t> status(memory, "status", {batch});
  call.output_token_ids = ids.device();
  call.num_accepted_tokens = accepted.device();
  call.status = status.device();
  void* workspace = memory.allocate("workspace", rejection_sample_cuda_workspace(call));
  check(rejection_sample_cuda(call, workspace, nullptr), "rejection_sample");
  return py::make_tuple(ids.download(), accepted.download(), status.download());
}

}  // namespace

void bind_rejection_sample(py::module_& module) {
  module.def("rejection_sample", &rejection_sample);
}

}  // namespace hetero_spec::simt_python
