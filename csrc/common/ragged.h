// SPDX-License-Identifier: Apache-2.0
// The ragged batch: request b owns draft tokens [cu[b], cu[b + 1]) and one target row more than
// that.
#pragma once

#include <cstdint>

#include "common/portability.h"

namespace hetero_spec {

constexpr int32_t kPlaceholderTokenId = -1;

struct Ragged {
  const int32_t* cu_num_draft_tokens;  // [B + 1], leading 0
  const int32_t* draft_token_ids;      // [N] target ids; -1 ends a request's draft
  int64_t batch_size;                  // B
  int64_t num_tokens;                  // N
  int64_t max_draft_tokens;            // K: no request verifies more than this many tokens
};

HETERO_SPEC_HD inline int64_t clamp_offset(int64_t offset, int64_t num_tokens) {
  return offset < 0 ? 0 : (offset > num_tokens ? num_tokens : offset);
}

// First draft token of a request. Offsets come from the device, so they are held inside [0, N]: a
// broken cu_num_draft_tokens may give a wrong answer but never an access out of bounds.
HETERO_SPEC_HD inline int64_t first_token(const Ragged& ragged, int64_t request_idx) {
  return clamp_offset(ragged.cu_num_draft_tokens[request_idx], ragged.num_tokens);
}

// Target row of a request's position: N + B rows, num_draft_tokens + 1 consecutive ones per
// request.
HETERO_SPEC_HD inline int64_t target_row(const Ragged& ragged, int64_t request_idx,
                                         int64_t position) {
  return first_token(ragged, request_idx) + request_idx + position;
}

// Draft tokens that count: up to the first -1, at most K.
HETERO_SPEC_HD inline int64_t num_valid_draft_tokens(const Ragged& ragged, int64_t request_idx) {
  const int64_t begin = first_token(ragged, request_idx);
  const int64_t end = clamp_offset(ragged.cu_num_draft_tokens[request_idx + 1], ragged.num_tokens);
  const int64_t limit =
      end - begin < ragged.max_draft_tokens ? end - begin : ragged.max_draft_tokens;
  int64_t count = 0;
  while (count < limit && ragged.draft_token_ids[begin + count] != kPlaceholderTokenId) ++count;
  return count;
}

}  // namespace hetero_spec
