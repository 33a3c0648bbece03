// SPDX-License-Identifier: Apache-2.0
#include "rdk_redistribute/rdk_redistribute_cuda.h"
#include "simt/python/rdk_kernel.h"

namespace hetero_spec::simt_python {
namespace {

py::array rdk_redistribute(const py::array& draft_probs, const KernelArrays& kernel) {
  DeviceMemory memory;
  RdkRedistribute call{};
  call.draft_probs = memory.upload<float>("draft_probs", draft_probs);
  call.row_stride = row_stride(draft_probs);
  call.num_rows = draft_probs.shape(0);
  call.vocab_size = draft_probs.shape(1);
  call.kernel = upload_kernel(memory, kernel, call.vocab_size);
  Output<float> probs(memory, "probs", {call.num_rows, call.vocab_size});
  call.probs = probs.device();
  void* workspace = memory.allocate("workspace", rdk_redistribute_cuda_workspace(call));
  check(rdk_redistribute_cuda(call, workspace, nullptr), "rdk_redistribute");
  return probs.download();
}

}  // namespace

void bind_rdk_redistribute(py::module_& module) {
  module.def("rdk_redistribute", &rdk_redistribute);
}

}  // namespace hetero_spec::simt_python
