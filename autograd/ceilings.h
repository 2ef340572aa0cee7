// SPDX-License-Identifier: Apache-2.0
// Ceilings: what this machine can do at most, measured with the kernels that training uses. For
// arithmetic that is a square matrix product, of f32 and of bf16 (by AMX or avx512_bf16 where the
// CPU has them); for memory x += a y, over arrays that stay in a cache of each size and over some
// that stay in none. (Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009, with a roof for
// each cache.) Takes about a second, on the CPU with the calling thread's number of threads. Other
// work on the machine makes the figures lower, so the best of several goes is taken. Thread safety:
// reentrant.
#pragma once

#include <peal/autograd/core/device.h>

#include <string_view>
#include <vector>

namespace peal {

struct OpCost;

struct Ceilings {
  double flops = 0;      // a second, products of f32 (TF32 on a device where the context allows it)
  double low_flops = 0;  // products of bf16
  // What is moved a second where the operands have so many bytes in all; the largest stand last.
  struct Traffic {
    double operands = 0, bytes = 0;
  };
  std::vector<Traffic> traffic;

  // Of the smallest operands that are not smaller than these, or the largest.
  double bytes(double operands) const;
};

Ceilings measure_ceilings(Device device = {});

// The least time that calls of an op take by the ceilings, and which one it is: "f32", "bf16",
// "bytes", or nothing where nothing is computed. A call's operands are as if they lay in the cache
// that holds them all.
struct Least {
  double seconds = 0;
  std::string_view by;
};
Least least_time(const OpCost& cost, double calls, const Ceilings& ceilings);

}  // namespace peal
