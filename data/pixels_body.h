// SPDX-License-Identifier: Apache-2.0
// The kernel of pixels.h, in the namespace PEAL_LEVEL. This file is compiled with several
// instruction sets, so nothing in it may have a linker symbol that another file shares (a test
// looks at the symbols).
#include <peal/data/pixels.h>

namespace peal::data::PEAL_LEVEL {
namespace {

// x / by. With a fused multiply-add the product with the reciprocal is mended by its remainder
// (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990),
// which is several times as fast.
[[gnu::always_inline]] inline float quotient(float x, float by, float reciprocal) {
#ifdef __FMA__
  const float near = x * reciprocal;
  return __builtin_fmaf(__builtin_fmaf(-near, by, x), reciprocal, near);
#else
  static_cast<void>(reciprocal);
  return x / by;
#endif
}

void normalise(const std::uint8_t* __restrict pixels, std::int64_t count, float mean, float std,
               float* __restrict to) {
  const float of_white = 1.0f / 255.0f, of_std = 1.0f / std;
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = quotient(static_cast<float>(pixels[i]), 255.0f, of_white);
    to[i] = quotient(scaled - mean, std, of_std);
  }
}

void normalise_rgb(const std::uint8_t* __restrict pixels, std::int64_t count, const float* mean,
                   const float* std, float* __restrict to) {
  const float of_white = 1.0f / 255.0f;
  float* __restrict red = to;
  float* __restrict green = to + count;
  float* __restrict blue = to + 2 * count;
  const float mean0 = mean[0], mean1 = mean[1], mean2 = mean[2];
  const float std0 = std[0], std1 = std[1], std2 = std[2];
  const float of_std0 = 1.0f / std0, of_std1 = 1.0f / std1, of_std2 = 1.0f / std2;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto scaled = [&](std::int64_t c) {
      return quotient(static_cast<float>(pixels[3 * i + c]), 255.0f, of_white);
    };
    red[i] = quotient(scaled(0) - mean0, std0, of_std0);
    green[i] = quotient(scaled(1) - mean1, std1, of_std1);
    blue[i] = quotient(scaled(2) - mean2, std2, of_std2);
  }
}

}  // namespace

RgbKernel rgb_kernel() { return normalise_rgb; }
PixelKernel pixel_kernel() { return normalise; }

}  // namespace peal::data::PEAL_LEVEL
