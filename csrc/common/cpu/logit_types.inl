// SPDX-License-Identifier: Apache-2.0
// Logits as they lie in memory; included inside the anonymous namespace of each
// row_kernels_<isa>.cpp.

struct Float32 {
  float value;
  static Float32 negative_infinity() { return {-__builtin_inff()}; }
};

struct Float16 {
  uint16_t bits;
  static Float16 negative_infinity() { return {0xFC00}; }
};

struct BFloat16 {
  uint16_t bits;
  static BFloat16 negative_infinity() { return {0xFF80}; }
};

// Copies row[ids[i]] without a branch on the ids: a foreign map is as good as random.
template <class T>
inline void gather_logits(const T* row, int64_t vocab_size, const int32_t* ids, int n, T* out) {
  for (int i = 0; i < n; ++i) {
    const uint32_t id =
        static_cast<uint32_t>(ids[i]);  // -1 turns into a number beyond every vocabulary
    const bool known = id < static_cast<uint64_t>(vocab_size);
    const T value = row[known ? id : 0];
    out[i] = known ? value : T::negative_infinity();
  }
}
