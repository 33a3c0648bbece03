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
#define VERIFY_RESULTS "(Tensor output_token_ids, Tensor num_accepted_tokens, Tensor status)"
#define VERIFY_RESULTS_OUT \
  "Tensor(a!) output_token_ids, Tensor(b!) num_accepted_tokens, Tensor(c!) status"

// Arguments of the ops that come twice: with new results, and as .out with the caller's.
#define REJECTION_SAMPLE_PROBS                                         \
  "Tensor target_probs, Tensor? draft_probs, Tensor draft_token_ids, " \
  "Tensor cu_num_draft_tokens, int max_draft_tokens, " RANDOM_NUMBERS ", int rule"

STABLE_TORCH_LIBRARY(hetero_spec, m) {
  m.def("row_stats(Tensor logits, Tensor? draft_to_target_ids, " SAMPLING_PARAMS ") -> Tensor");

  m.def(
      "remap_probs(Tensor draft_logits, Tensor draft_to_target_ids, int "
      "target_vocab_size, " SAMPLING_PARAMS ") -> Tensor");

  m.def("draft_sample(Tensor draft_logits, Tensor? draft_to_target_ids, " SAMPLING_PARAMS
        ", " RANDOM_NUMBERS
        ") -> (Tensor target_token_ids, Tensor draft_token_ids, Tensor probs, Tensor stats, Tensor "
        "entropy, "
        "Tensor max_prob)");

  m.def(
      "rejection_sample(Tensor target_logits, Tensor draft_token_ids, Tensor cu_num_draft_tokens, "
      "int max_draft_tokens, Tensor? draft_logits, Tensor? draft_stats, Tensor? "
      "target_to_draft_ids, " SAMPLING_PARAMS ", " RANDOM_NUMBERS
      ", int rule) "
      "-> (Tensor output_token_ids, Tensor num_accepted_tokens, Tensor status)");

  m.def("rejection_sample_probs(" REJECTION_SAMPLE_PROBS ") -> " VERIFY_RESULTS);
  m.def("rejection_sample_probs.out(" REJECTION_SAMPLE_PROBS ", *, " VERIFY_RESULTS_OUT ") -> ()");

  m.def(
      "acceptance_overlap(Tensor target_logits, Tensor draft_logits, Tensor? draft_stats, "
      "Tensor? target_to_draft_ids, " SAMPLING_PARAMS ") -> Tensor");
}
