// SPDX-License-Identifier: Apache-2.0
#include "acceptance_overlap/acceptance_overlap_cuda.h"
#include "simt/python/rdk_kernel.h"

namespace hetero_spec::simt_python {
namespace {

py::array acceptance_overlap(const py::array& target_logits, int dtype,
                             const py::array& draft_logits, int draft_dtype,
                             const OptionalArray& draft_stats,
                             const OptionalArray& target_to_draft_ids, const Parameters& parameters,
                             const KernelArrays& kernel) {
  DeviceMemory memory;
  const int64_t rows = target_logits.shape(0);
  AcceptanceOverlapCuda call{};
  call.target_logits = {memory.upload<void>("target_logits", target_logits), DType(dtype),
                        row_stride(target_logits), target_logits.shape(1)};
  call.draft_logits = {memory.upload<void>("draft_logits", draft_logits), DType(draft_dtype),
                       row_stride(draft_logits), draft_logits.shape(1)};
  call.num_rows = rows;
  call.draft_stats =
      reinterpret_cast<const RowStats*>(memory.upload<float>("draft_stats", draft_stats));
  call.target_to_draft_ids = memory.upload<int32_t>("map", target_to_draft_ids);
  call.kernel = upload_kernel(memory, kernel, target_logits.shape(1));
  call.params = memory.upload(parameters);
  Output<float> overlap(memory, "overlap", {rows});
  call.overlap = overlap.device();
  void* workspace = memory.allocate("workspace", acceptance_overlap_cuda_workspace(call));
  check(acceptance_overlap_cuda(call, workspace, nullptr), "acceptance_overlap");
  return overlap.download();
}

}  // namespace

void bind_acceptance_overlap(py::module_& module) {
  module.def("acceptance_overlap", &acceptance_overlap);
}

}  // namespace hetero_spec::simt_python
