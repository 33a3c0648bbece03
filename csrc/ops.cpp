// SPDX-License-Identifier: Apache-2.0
// Every op of the package, one schema each. The kernels register themselves in
// csrc/<op>/<op>_binding.cpp; the fake (meta) kernels and the documented Python wrappers are in
// hetero_spec/ops/<op>.py.
//
// Sampling parameters come twice: a tensor of one value per request, or, where that is absent, the
// scalar. top_k <= 0, top_p >= 1 and min_p <= 0 switch a processor off. rule: 0 = token, 1 = block.
#include <torch/csrc/stable/library.h>

#define SAMPLING_PARAMS                                                \
  "Tensor? temperature, Tensor? top_k, Tensor? top_p, Tensor? min_p, " \
  "float default_temperature, int default_top_k, float default_top_p, float default_min_p"
#define RANDOM_NUMBERS "Tensor? seeds, Tensor? positions, Tensor? uniform_samples"
// An RDK kernel: the tensors that it has, which those are (-1: no kernel), its leak if constant.
#define RDK_KERNEL "Tensor[] kernel, int kernel_parts, float constant_leak"

STABLE_TORCH_LIBRARY(hetero_spec, m) {
  m.def("row_stats(Tensor logits, Tensor? draft_to_target_ids, " SAMPLING_PARAMS ") -> Tensor");

  m.def(
      "remap_probs(Tensor draft_logits, Tensor draft_to_target_ids, int "
      "target_vocab_size, " SAMPLING_PARAMS ") -> Tensor");

  m.def("rdk_redistribute(Tensor draft_probs, " RDK_KERNEL
        ", Tensor? factors, float scale, float lam) -> Tensor");

  m.def(
      "draft_sample(Tensor draft_logits, Tensor? draft_to_target_ids, Tensor? "
      "target_to_draft_ids, " SAMPLING_PARAMS ", " RANDOM_NUMBERS ", " RDK_KERNEL
      ") -> (Tensor target_token_ids, Tensor draft_token_ids, Tensor probs, Tensor stats, Tensor "
      "entropy, Tensor max_prob, Tensor leaked_mass)");

  m.def(
      "rejection_sample(Tensor target_logits, Tensor draft_token_ids, Tensor cu_num_draft_tokens, "
      "int max_draft_tokens, Tensor? draft_logits, Tensor? draft_stats, Tensor? "
      "target_to_draft_ids, " SAMPLING_PARAMS ", " RANDOM_NUMBERS ", " RDK_KERNEL
      ", Tensor? draft_leaked_mass, int rule) "
      "-> (Tensor output_token_ids, Tensor num_accepted_tokens, Tensor status)");

  m.def(
      "rejection_sample_probs(Tensor target_probs, Tensor? draft_probs, Tensor draft_token_ids, "
      "Tensor cu_num_draft_tokens, int max_draft_tokens, " RANDOM_NUMBERS
      ", int rule) "
      "-> (Tensor output_token_ids, Tensor num_accepted_tokens, Tensor status)");

  m.def(
      "acceptance_overlap(Tensor target_logits, Tensor draft_logits, Tensor? draft_stats, "
      "Tensor? target_to_draft_ids, " SAMPLING_PARAMS ", " RDK_KERNEL ") -> Tensor");
}
