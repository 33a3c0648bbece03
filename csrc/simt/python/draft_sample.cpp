// SPDX-License-Identifier: Apache-2.0
#include "draft_sample/draft_sample_cuda.h"
#include "simt/python/rdk_kernel.h"

namespace hetero_spec::simt_python {
namespace {

py::tuple draft_sample(const py::array& draft_logits, int dtype,
                       const OptionalArray& draft_to_target_ids, const Parameters& parameters,
                       const OptionalArray& seeds, const OptionalArray& positions,
                       const OptionalArray& uniform_samples, const KernelArrays& kernel,
                       const OptionalArray& target_to_draft_ids) {
  DeviceMemory memory;
  const int64_t batch = draft_logits.shape(0);
  DraftSampleCuda call{};
  call.draft_logits = {memory.upload<void>("draft_logits", draft_logits), DType(dtype),
                       row_stride(draft_logits), draft_logits.shape(1)};
  call.batch_size = batch;
  call.draft_to_target_ids = memory.upload<int32_t>("map", draft_to_target_ids);
  call.target_to_draft_ids = memory.upload<int32_t>("inverse map", target_to_draft_ids);
  call.kernel = upload_kernel(
      memory, kernel,
      target_to_draft_ids.has_value() ? target_to_draft_ids->shape(0) : draft_logits.shape(1));
  call.params = memory.upload(parameters);
  call.uniform_samples = memory.upload<double>("uniform_samples", uniform_samples);
  call.seeds = memory.upload<int64_t>("seeds", seeds);
  call.positions = memory.upload<int64_t>("positions", positions);
  Output<int32_t> target_token_ids(memory, "target_token_ids", {batch});
  Output<int32_t> draft_token_ids(memory, "draft_token_ids", {batch});
  Output<float> probs(memory, "probs", {batch});
  Output<float> stats(memory, "stats", {batch, 4});
  Output<float> entropy(memory, "entropy", {batch});
  Output<float> max_prob(memory, "max_prob", {batch});
  std::vector<int64_t> kept{call.kernel.is_given() ? batch : 0};
  if (call.kernel.is_low_rank()) kept.push_back(call.kernel.row_width());
  Output<float> leaked_mass(memory, "leaked_mass", kept);
  call.leaked_mass = leaked_mass.device();
  call.target_token_ids = target_token_ids.device();
  call.draft_token_ids = draft_token_ids.device();
  call.probs = probs.device();
  call.stats = reinterpret_cast<RowStats*>(stats.device());
  call.entropy = entropy.device();
  call.max_prob = max_prob.device();
  void* workspace = memory.allocate("workspace", draft_sample_cuda_workspace(call));
  check(draft_sample_cuda(call, workspace, nullptr), "draft_sample");
  return py::make_tuple(target_token_ids.download(), draft_token_ids.download(), probs.download(),
                        stats.download(), entropy.download(), max_prob.download(),
                        leaked_mass.download());
}

}  // namespace

void bind_draft_sample(py::module_& module) { module.def("draft_sample", &draft_sample); }

}  // namespace hetero_spec::simt_python
