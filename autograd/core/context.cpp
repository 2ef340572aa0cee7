// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>

namespace peal {

Context& context() {
  thread_local Context instance;
  return instance;
}

void manual_seed(std::uint64_t seed) { context().generator = {seed, 0}; }

}  // namespace peal
