// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/init.h>
#include <peal/nn/layers/pairs.h>

#include <cmath>

namespace peal::nn {

Bilinear::Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, bool with_bias) {
  PEAL_CHECK(in1 > 0 && in2 > 0 && out > 0, "Bilinear: sizes must be positive, got ", in1, ", ",
             in2, " and ", out);
  const double bound = 1 / std::sqrt(static_cast<double>(in1));
  weight = add_parameter("weight", init::uniform({out, in1, in2}, bound));
  if (with_bias) bias = add_parameter("bias", init::uniform({out}, bound));
}

}  // namespace peal::nn
