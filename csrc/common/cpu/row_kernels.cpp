// SPDX-License-Identifier: Apache-2.0
#include "common/cpu/row_kernels.h"

#include <cstdlib>
#include <cstring>

namespace hetero_spec {

extern const RowKernels kRowKernelsGeneric;
#if defined(HETERO_SPEC_X86)
extern const RowKernels kRowKernelsAvx2;
extern const RowKernels kRowKernelsAvx512;
#endif

namespace {

const RowKernels* best_supported(const char* wanted) {
#if defined(HETERO_SPEC_X86)
  // A name limits the choice from above; a processor that lacks the named set still gets one that
  // works.
  const bool up_to_avx512 = wanted == nullptr || std::strcmp(wanted, "avx512") == 0;
  const bool up_to_avx2 = up_to_avx512 || std::strcmp(wanted, "avx2") == 0;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (up_to_avx512 && avx512) return &kRowKernelsAvx512;
  if (up_to_avx2 && avx2) return &kRowKernelsAvx2;
#else
  (void)wanted;
#endif
  return &kRowKernelsGeneric;
}

}  // namespace

const RowKernels& row_kernels() {
  static const RowKernels* const chosen = best_supported(std::getenv("HETERO_SPEC_CPU_ISA"));
  return *chosen;
}

}  // namespace hetero_spec
