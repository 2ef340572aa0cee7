// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/fork.h>

#include <pthread.h>

#include <atomic>

namespace peal {
namespace {

std::atomic<int> forked{0};
// Before the program can make anything.
[[maybe_unused]] const int counts = pthread_atfork(nullptr, nullptr, [] { forked.fetch_add(1); });

}  // namespace

int ForkMark::forks() { return forked.load(std::memory_order_relaxed); }

}  // namespace peal
