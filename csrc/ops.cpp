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
// An RDK kernel: the tensors of a mixture, which those are (-1: none), its leak if constant; or the
// factors of a low-rank one, their scale, and the share of what they make.
#define RDK_KERNEL                                           \
  "Tensor[] kernel, int kernel_parts, float constant_leak, " \
  "Tensor? factors, float scale, float lam"

// Ops that come twice: with new results, and as .out with tensors of the caller for them.
#define DRAFT_SAMPLE                                           \
  "Tensor draft_logits, Tensor? draft_to_target_ids, Tensor? " \
  "target_to_draft_ids, " SAMPLING_PARAMS ", " RANDOM_NUMBERS ", " RDK_KERNEL
#define REJECTION_SAMPLE                                                              \
  "Tensor target_logits, Tensor draft_token_ids, Tensor cu_num_draft_tokens, "        \
  "int max_draft_tokens, Tensor? draft_logits, Tensor? draft_stats, "                 \
  "Tensor? target_to_draft_ids, " SAMPLING_PARAMS ", " RANDOM_NUMBERS ", " RDK_KERNEL \
  ", Tensor? draft_leaked_mass, int rule"
#define REJECTION_SAMPLE_PROBS                                         \
  "Tensor target_probs, Tensor? draft_probs, Tensor draft_token_ids, " \
  "Tensor cu_num_draft_tokens, int max_draft_tokens, " RANDOM_NUMBERS ", int rule"
#define DRAFT_RESULTS                                                                              \
  "(Tensor target_token_ids, Tensor draft_token_ids, Tensor probs, Tensor stats, Tensor entropy, " \
  "Tensor max_prob, Tensor leaked_mass)"
#define DRAFT_RESULTS_OUT                                                                         \
  "Tensor(a!) target_token_ids, Tensor(b!) draft_token_ids, Tensor(c!) probs, Tensor(d!) stats, " \
  "Tensor(e!) entropy, Tensor(f!) max_prob, Tensor(g!)? leaked_mass"
#define VERIFY_RESULTS "(Tensor output_token_ids, Tensor num_accepted_tokens, Tensor status)"
#define VERIFY_RESULTS_OUT \
  "Tensor(a!) output_token_ids, Tensor(b!) num_accepted_tokens, Tensor(c!) status"

STABLE_TORCH_LIBRARY(hetero_spec, m) {
  m.def("row_stats(Tensor logits, Tensor? draft_to_target_ids, " SAMPLING_PARAMS ") -> Tensor");

  m.def(
      "remap_probs(Tensor draft_logits, Tensor draft_to_target_ids, int "
      "target_vocab_size, " SAMPLING_PARAMS ") -> Tensor");

  m.def("rdk_redistribute(Tensor draft_probs, " RDK_KERNEL ") -> Tensor");

  m.def("draft_sample(" DRAFT_SAMPLE ") -> " DRAFT_RESULTS);
  m.def("draft_sample.out(" DRAFT_SAMPLE ", *, " DRAFT_RESULTS_OUT ") -> ()");

  m.def("rejection_sample(" REJECTION_SAMPLE ") -> " VERIFY_RESULTS);
  m.def("rejection_sample.out(" REJECTION_SAMPLE ", *, " VERIFY_RESULTS_OUT ") -> ()");

  m.def("rejection_sample_probs(" REJECTION_SAMPLE_PROBS ") -> " VERIFY_RESULTS);
  m.def("rejection_sample_probs.out(" REJECTION_SAMPLE_PROBS ", *, " VERIFY_RESULTS_OUT ") -> ()");

  m.def(
      "acceptance_overlap(Tensor target_logits, Tensor draft_logits, Tensor? draft_stats, "
      "Tensor? target_to_draft_ids, " SAMPLING_PARAMS ", " RDK_KERNEL ") -> Tensor");
}
