// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include "row_stats/row_stats_cuda.h"
#include "simt/python/device_array.h"

namespace hetero_spec::simt_python {
namespace {

py::array row_stats(const py::array& logits, int dtype, const OptionalArray& draft_to_target_ids,
                    const Parameters& parameters) {
  DeviceMemory memory;
  const int64_t rows = logits.shape(0), vocab_size = logits.shape(1);
  const void* device_logits = memory.upload<void>("logits", logits);
  const auto* map = memory.upload<int32_t>("map", draft_to_target_ids);
  const SamplingParams params = memory.upload(parameters);
  Output<float> stats(memory, "stats", {rows, 4});
  void* workspace =
      memory.allocate("workspace", row_stats_cuda_workspace(rows, vocab_size, map != nullptr));
  check(row_stats_cuda(device_logits, DType(dtype), row_stride(logits), rows, vocab_size, map,
                       params, reinterpret_cast<RowStats*>(stats.device()), workspace, nullptr),
        "row_stats");
  return stats.download();
}

}  // namespace

void bind_row_stats(py::module_& module) { module.def("row_stats", &row_stats); }

}  // namespace hetero_spec::simt_python
