// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/stable/library.h>

#include <tuple>
#include <vector>

#include "common/torch/arguments.h"
#include "common/torch/rdk_arguments.h"
#include "draft_sample/draft_sample.h"
#if defined(HETERO_SPEC_WITH_CUDA)
#include "common/torch/cuda.h"
#include "draft_sample/draft_sample_cuda.h"
#endif

namespace hetero_spec {
namespace {

constexpr const char* kOp = "draft_sample";

// The schema's arguments but the sampling parameters.
struct Arguments {
  const Tensor& draft_logits;
  const std::optional<Tensor>& draft_to_target_ids;
  const std::optional<Tensor>& target_to_draft_ids;
  const std::optional<Tensor>& seeds;
  const std::optional<Tensor>& positions;
  const std::optional<Tensor>& uniform_samples;
  KernelTensors kernel;
};

struct Call {
  LogitMatrix logits;
  int64_t batch_size;
  const int32_t* draft_to_target_ids;
  const int32_t* target_to_draft_ids;
  RdkKernel kernel;
  SamplingParams params;
  DraftUniforms uniforms;
};

Call checked(const Arguments& in, const SamplingTensors& params) {
  const Tensor& like = in.draft_logits;
  Call out{};
  out.logits = logit_matrix(like, kOp, "draft_logits");
  out.batch_size = like.size(0);
  out.params = sampling_params(params, out.batch_size, like, kOp);
  out.draft_to_target_ids = optional_data<int32_t>(
      in.draft_to_target_ids, ScalarType::Int, {like.size(1)}, like, kOp, "draft_to_target_ids");
  out.target_to_draft_ids = optional_data<int32_t>(in.target_to_draft_ids, ScalarType::Int, {-1},
                                                   like, kOp, "target_to_draft_ids");
  const bool has_kernel = in.kernel.is_given();
  STD_TORCH_CHECK(
      !has_kernel || in.target_to_draft_ids.has_value() == in.draft_to_target_ids.has_value(), kOp,
      ": target_to_draft_ids must be given with a kernel exactly if draft_to_target_ids is");
  const int64_t vocab_size =
      in.target_to_draft_ids.has_value() ? in.target_to_draft_ids->size(0) : like.size(1);
  out.kernel = rdk_kernel(in.kernel, vocab_size, like, kOp);
  if (in.uniform_samples.has_value() && has_kernel) {
    out.uniforms.samples = optional_data<double>(in.uniform_samples, ScalarType::Double,
                                                 {out.batch_size, 3}, like, kOp, "uniform_samples");
  } else {
    out.uniforms.samples = optional_data<double>(in.uniform_samples, ScalarType::Double,
                                                 {out.batch_size}, like, kOp, "uniform_samples");
  }
  out.uniforms.seeds =
      optional_data<int64_t>(in.seeds, ScalarType::Long, {out.batch_size}, like, kOp, "seeds");
  out.uniforms.positions = optional_data<int64_t>(in.positions, ScalarType::Long, {out.batch_size},
                                                  like, kOp, "positions");
  // Asked of the arguments, not of the pointers: those are null for an empty batch.
  STD_TORCH_CHECK(
      in.uniform_samples.has_value() || (in.seeds.has_value() && in.positions.has_value()), kOp,
      ": uniform_samples must be given, or seeds and positions, got neither");
  return out;
}

// The results: new tensors, or the caller's (the .out overload). leaked_mass is empty, or null if
// the caller gives none, without a kernel.
struct Results {
  Tensor target_token_ids, draft_token_ids, probs, stats, entropy, max_prob;
  std::optional<Tensor> leaked_mass;

  DraftSampleOutputs pointers() const {
    return {
        static_cast<int32_t*>(target_token_ids.mutable_data_ptr()),
        static_cast<int32_t*>(draft_token_ids.mutable_data_ptr()),
        static_cast<float*>(probs.mutable_data_ptr()),
        static_cast<RowStats*>(stats.mutable_data_ptr()),
        static_cast<float*>(entropy.mutable_data_ptr()),
        static_cast<float*>(max_prob.mutable_data_ptr()),
        leaked_mass.has_value() ? static_cast<float*>(leaked_mass->mutable_data_ptr()) : nullptr};
  }
};

Results new_results(const Call& call, const Tensor& like) {
  const int64_t batch_size = call.batch_size;
  const Tensor leaked_mass =
      call.kernel.is_low_rank()
          ? new_tensor(like, {batch_size, call.kernel.row_width()}, ScalarType::Float)
          : new_tensor(like, {call.kernel.is_given() ? batch_size : 0}, ScalarType::Float);
  return {new_tensor(like, {batch_size}, ScalarType::Int),
          new_tensor(like, {batch_size}, ScalarType::Int),
          new_tensor(like, {batch_size}, ScalarType::Float),
          new_tensor(like, {batch_size, 4}, ScalarType::Float),
          new_tensor(like, {batch_size}, ScalarType::Float),
          new_tensor(like, {batch_size}, ScalarType::Float),
          leaked_mass};
}

Results checked_results(const Results& given, const Call& call, const Tensor& like) {
  const int64_t batch_size = call.batch_size;
  const auto check = [&](const Tensor& tensor, ScalarType dtype, const char* argument) {
    check_output(tensor, dtype, {batch_size}, like, kOp, argument);
  };
  check(given.target_token_ids, ScalarType::Int, "target_token_ids");
  check(given.draft_token_ids, ScalarType::Int, "draft_token_ids");
  check(given.probs, ScalarType::Float, "probs");
  check_output(given.stats, ScalarType::Float, {batch_size, 4}, like, kOp, "stats");
  check(given.entropy, ScalarType::Float, "entropy");
  check(given.max_prob, ScalarType::Float, "max_prob");
  STD_TORCH_CHECK(given.leaked_mass.has_value() == call.kernel.is_given(), kOp,
                  ": leaked_mass must be given exactly if a kernel is");
  kept_of_rows(given.leaked_mass, call.kernel, batch_size, like, kOp, "leaked_mass");
  return given;
}

using Run = void (*)(const Call& call, const Tensor& draft_logits, const DraftSampleOutputs& out);

void run_on_cpu(const Call& call, const Tensor&, const DraftSampleOutputs& out) {
  draft_sample_cpu(call.logits, call.batch_size, call.draft_to_target_ids, call.target_to_draft_ids,
                   call.kernel, call.params, call.uniforms, out, torch_parallel());
}

#if defined(HETERO_SPEC_WITH_CUDA)
void run_on_cuda(const Call& call, const Tensor& draft_logits, const DraftSampleOutputs& out) {
  const torch::stable::accelerator::DeviceGuard guard(draft_logits.get_device_index());
  const DraftSampleCuda cuda{device_logits(call.logits),
                             call.batch_size,
                             call.draft_to_target_ids,
                             call.target_to_draft_ids,
                             call.kernel,
                             call.params,
                             call.uniforms.samples,
                             call.uniforms.seeds,
                             call.uniforms.positions,
                             out.target_token_ids,
                             out.draft_token_ids,
                             out.probs,
                             out.stats,
                             out.entropy,
                             out.max_prob,
                             out.leaked_mass};
  Tensor workspace = new_workspace(draft_logits, draft_sample_cuda_workspace(cuda));
  check_launch(draft_sample_cuda(cuda, workspace.mutable_data_ptr(), current_stream(draft_logits)),
               kOp);
}
#endif

template <Run run>
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> draft_sample(
    const Tensor& draft_logits, const std::optional<Tensor>& draft_to_target_ids,
    const std::optional<Tensor>& target_to_draft_ids, const std::optional<Tensor>& temperature,
    const std::optional<Tensor>& top_k, const std::optional<Tensor>& top_p,
    const std::optional<Tensor>& min_p, double default_temperature, int64_t default_top_k,
    double default_top_p, double default_min_p, const std::optional<Tensor>& seeds,
    const std::optional<Tensor>& positions, const std::optional<Tensor>& uniform_samples,
    const std::vector<Tensor>& kernel, int64_t kernel_parts, double constant_leak,
    const std::optional<Tensor>& factors, double scale, double lam) {
  const Call call = checked({draft_logits,
                             draft_to_target_ids,
                             target_to_draft_ids,
                             seeds,
                             positions,
                             uniform_samples,
                             {kernel, kernel_parts, constant_leak, factors, scale, lam}},
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p});
  const Results results = new_results(call, draft_logits);
  run(call, draft_logits, results.pointers());
  return {results.target_token_ids, results.draft_token_ids, results.probs,       results.stats,
          results.entropy,          results.max_prob,        *results.leaked_mass};
}

template <Run run>
void draft_sample_out(const Tensor& draft_logits, const std::optional<Tensor>& draft_to_target_ids,
                      const std::optional<Tensor>& target_to_draft_ids,
                      const std::optional<Tensor>& temperature, const std::optional<Tensor>& top_k,
                      const std::optional<Tensor>& top_p, const std::optional<Tensor>& min_p,
                      double default_temperature, int64_t default_top_k, double default_top_p,
                      double default_min_p, const std::optional<Tensor>& seeds,
                      const std::optional<Tensor>& positions,
                      const std::optional<Tensor>& uniform_samples,
                      const std::vector<Tensor>& kernel, int64_t kernel_parts, double constant_leak,
                      const std::optional<Tensor>& factors, double scale, double lam,
                      const Tensor& target_token_ids, const Tensor& draft_token_ids,
                      const Tensor& probs, const Tensor& stats, const Tensor& entropy,
                      const Tensor& max_prob, const std::optional<Tensor>& leaked_mass) {
  const Call call = checked({draft_logits,
                             draft_to_target_ids,
                             target_to_draft_ids,
                             seeds,
                             positions,
                             uniform_samples,
                             {kernel, kernel_parts, constant_leak, factors, scale, lam}},
                            {temperature, top_k, top_p, min_p, default_temperature, default_top_k,
                             default_top_p, default_min_p});
  const Results results = checked_results(
      {target_token_ids, draft_token_ids, probs, stats, entropy, max_prob, leaked_mass}, call,
      draft_logits);
  run(call, draft_logits, results.pointers());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CPU, m) {
  m.impl("draft_sample", TORCH_BOX(&draft_sample<run_on_cpu>));
  m.impl("draft_sample.out", TORCH_BOX(&draft_sample_out<run_on_cpu>));
}
#if defined(HETERO_SPEC_WITH_CUDA)
STABLE_TORCH_LIBRARY_IMPL(hetero_spec, CUDA, m) {
  m.impl("draft_sample", TORCH_BOX(&draft_sample<run_on_cuda>));
  m.impl("draft_sample.out", TORCH_BOX(&draft_sample_out<run_on_cuda>));
}
#endif

}  // namespace hetero_spec
