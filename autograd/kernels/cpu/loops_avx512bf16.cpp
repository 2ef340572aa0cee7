// SPDX-License-Identifier: Apache-2.0
// The loops of bf16 with the CPU's own rounding (AVX512_BF16, VCVTNEPS2BF16), to the same bits as
// without. Compiled for the CPUs that have it, and called on no others. Under the rule of
// loops_body.h about symbols.
#define PEAL_LEVEL avx512bf16
#include <peal/autograd/kernels/cpu/loops_elementwise.h>
#include <peal/autograd/kernels/cpu/loops_masked.h>
#include <peal/autograd/kernels/cpu/loops_math.h>
#include <peal/autograd/kernels/cpu/loops_width.h>
#include <peal/autograd/kernels/cpu/planes_body.h>

namespace peal::cpu::avx512bf16 {

template <class T>
const WidthLoops<T>& all_width_loops() {
  return width_loops_here<T>;
}
template <class T>
const Loops<T>& all_loops() {
  return loops_here<T>;
}
template <class T>
const MaskedLoops<T>& all_masked_loops() {
  return masked_loops_here<T>;
}
template <class T>
const PointwiseLoops<T>& all_pointwise_loops() {
  return pointwise_loops_here<T>;
}
const PlaneLoops<BFloat16>& plane_loops_bf16() { return plane_loops_here<BFloat16>; }
template const WidthLoops<BFloat16>& all_width_loops<BFloat16>();
template const Loops<BFloat16>& all_loops<BFloat16>();
template const MaskedLoops<BFloat16>& all_masked_loops<BFloat16>();
template const PointwiseLoops<BFloat16>& all_pointwise_loops<BFloat16>();

}  // namespace peal::cpu::avx512bf16
