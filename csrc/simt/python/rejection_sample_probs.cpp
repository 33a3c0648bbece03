// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include "rejection_sample_probs/rejection_sample_probs_cuda.h"
#include "simt/python/device_array.h"

namespace hetero_spec::simt_python {
namespace {

py::tuple rejection_sample_probs(const py::array& target_probs, const OptionalArray& draft_probs,
                                 const py::array& draft_token_ids,
                                 const py::array& cu_num_draft_tokens, int64_t max_draft_tokens,
                                 const OptionalArray& seeds, const OptionalArray& positions,
                                 const OptionalArray& uniform_samples, bool block_rule) {
  DeviceMemory memory;
  const int64_t batch = cu_num_draft_tokens.shape(0) - 1;
  RejectionSampleProbsCuda call{};
  call.ragged = {memory.upload<int32_t>("cu_num_draft_tokens", cu_num_draft_tokens),
                 memory.upload<int32_t>("draft_token_ids", draft_token_ids), batch,
                 draft_token_ids.shape(0), max_draft_tokens};
  call.target_probs = {memory.upload<void>("target_probs", target_probs), DType::kFloat32,
                       row_stride(target_probs), target_probs.shape(1)};
  if (draft_probs.has_value()) {
    const void* data = memory.upload<void>("draft_probs", *draft_probs);
    call.draft_probs = {data, DType::kFloat32, row_stride(*draft_probs), draft_probs->shape(1)};
  }
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
  void* workspace = memory.allocate("workspace", rejection_sample_probs_cuda_workspace(call));
  check(rejection_sample_probs_cuda(call, workspace, nullptr), "rejection_sample_probs");
  return py::make_tuple(ids.download(), accepted.download(), status.download());
}

}  // namespace

void bind_rejection_sample_probs(py::module_& module) {
  module.def("rejection_sample_probs", &rejection_sample_probs);
}

}  // namespace hetero_spec::simt_python
