// SPDX-License-Identifier: Apache-2.0
// Threads belong to the caller: a CPU kernel gets a loop to run its tasks in, and no thread of its
// own.
#pragma once

#include <cstdint>

namespace hetero_spec {

struct Parallel {
  using Body = void (*)(void* task, int64_t begin, int64_t end);
  // Runs body over [0, size) in pieces of at least `grain`, perhaps at once, and returns when all
  // are done.
  void (*run)(int64_t size, int64_t grain, void* task, Body body);
};

template <class F>
void parallel_for(const Parallel& parallel, int64_t size, int64_t grain, F body) {
  if (size <= 0) return;
  parallel.run(size, grain, &body, [](void* task, int64_t begin, int64_t end) {
    (*static_cast<F*>(task))(begin, end);
  });
}

}  // namespace hetero_spec
