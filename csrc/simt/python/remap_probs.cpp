// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include "remap_probs/remap_probs_cuda.h"
#include "simt/python/device_array.h"

namespace hetero_spec::simt_python {
namespace {

py::array remap_probs(const py::array& draft_logits, int dtype,
                      const py::array& draft_to_target_ids, int64_t target_vocab_size,
                      const Parameters& parameters) {
  DeviceMemory memory;
  const int64_t rows = draft_logits.shape(0);
  RemapProbsCuda call{};
  call.draft_logits = {memory.upload<void>("draft_logits", draft_logits), DType(dtype),
                       row_stride(draft_logits), draft_logits.shape(1)};
  call.num_rows = rows;
  call.draft_to_target_ids = memory.upload<int32_t>("map", draft_to_target_ids);
  call.target_vocab_size = target_vocab_size;
  call.params = memory.upload(parameters);
  Output<float> probs(memory, "probs", {rows, target_vocab_size});
  call.probs = probs.device();
  void* workspace = memory.allocate("workspace", remap_probs_cuda_workspace(call));
  check(remap_probs_cuda(call, workspace, nullptr), "remap_probs");
  return probs.download();
}

}  // namespace

void bind_remap_probs(py::module_& module) { module.def("remap_probs", &remap_probs); }

}  // namespace hetero_spec::simt_python
