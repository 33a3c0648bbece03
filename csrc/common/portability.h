// SPDX-License-Identifier: Apache-2.0
// One macro: a function marked HETERO_SPEC_HD compiles for the host and, under nvcc, for the
// device.
#pragma once

#if defined(__CUDACC__)
#define HETERO_SPEC_HD __host__ __device__
#else
#define HETERO_SPEC_HD
#endif
