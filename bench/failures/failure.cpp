// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/bench/failures/failure.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace peal::failures {

void Fate::begin() {
  begun_ = true;
  when_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                 std::chrono::duration<double>(failure_.after));
  records_.write("begins", concat(getpid()));
}

void Fate::look() const {
  if (!mine_ || !begun_ || std::chrono::steady_clock::now() < when_) return;
  if (failure_.way == "memory") fill_memory();
  records_.write("fails");
  if (failure_.way == "exit") std::exit(0);
  throw std::runtime_error("a failure of its own");
}

// The kernel kills it when its control group has no more. Each piece says that it still lived.
void Fate::fill_memory() const {
  constexpr std::size_t piece = 1 << 20, most = 4096;
  std::ofstream(failure_.group + "/cgroup.procs") << getpid() << std::flush;
  for (std::size_t i = 0; i < most; ++i) {
    records_.write("fails");
    void* const memory =
        mmap(nullptr, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    PEAL_CHECK(memory != MAP_FAILED, "no memory is mapped");
    std::memset(memory, 1, piece);
  }
  records_.write("wrong", concat("it has ", most, " MiB beyond the limit of ", failure_.group));
  std::_Exit(3);
}

}  // namespace peal::failures
