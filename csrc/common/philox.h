// SPDX-License-Identifier: Apache-2.0
// Counter-based uniforms: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as
// 1, 2, 3").
//
// Key: the request's seed. Counter: (position, stream). So a draw depends on nothing else: not on
// the batch, not on the row's place in it, not on how work is split. Proposing, accepting and
// resampling use separate streams, since a stream shared between a proposal and its verification
// bends the output law.
#pragma once

#include <cstdint>

#include "common/portability.h"

namespace hetero_spec {

enum class Stream : uint32_t { kPropose = 0, kAccept = 1, kResample = 2, kLeak = 3, kRedraw = 4 };

struct PhiloxWords {
  uint32_t word[4];
};

HETERO_SPEC_HD inline PhiloxWords philox4x32_10(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * counter.word[0];
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// A double in [0, 1) with 53 random bits.
HETERO_SPEC_HD inline double uniform_sample(int64_t seed, int64_t position, Stream stream) {
  const uint64_t key = static_cast<uint64_t>(seed), index = static_cast<uint64_t>(position);
  const PhiloxWords random =
      philox4x32_10({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                      static_cast<uint32_t>(stream), 0u}},
                    static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
  const uint64_t bits = (static_cast<uint64_t>(random.word[0]) << 32) | random.word[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace hetero_spec
