// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>

#include <unistd.h>

#include <atomic>

namespace peal {
namespace {

// The first thread begins with seed 0, the others with seeds far from those that people choose.
Context fresh() {
  static std::atomic<std::uint64_t> threads{0};
  Context made;
  if (::gettid() == ::getpid()) return made;
  const std::uint64_t number = threads.fetch_add(1, std::memory_order_relaxed);
  const PhiloxBlock block = philox(~std::uint64_t{0}, number);
  made.generator.seed = std::uint64_t{block.word[0]} << 32 | block.word[1];
  return made;
}

}  // namespace

Context& context() {
  thread_local Context instance = fresh();
  return instance;
}

void manual_seed(std::uint64_t seed) { context().generator = {seed, 0}; }

}  // namespace peal
