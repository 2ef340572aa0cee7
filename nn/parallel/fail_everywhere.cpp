// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/nn/parallel/fail_everywhere.h>

#include <string>
#include <string_view>

namespace peal::nn {

void fail_everywhere(const comm::ProcessGroup& group, std::string_view what, std::string_view who) {
  const std::string message =
      concat("[", who, "] rank ", group.global_rank(group.rank()), ": ", what);
  group.poison(message);
  fail(message);
}

void rethrow_everywhere(const comm::ProcessGroup& group, std::string_view what,
                        std::string_view who) {
  if (group.world() == 1) throw;
  const bool memory = ran_out_of_memory();
  const std::string words = words_of_failure();
  try {
    group.check();
    fail_everywhere(group, concat(what, ": ", words), who);
  } catch (const Error& told) {
    // They may be another rank's words, of another fault.
    const bool of_memory =
        std::string_view(told.what()).find(out_of_memory_words) != std::string_view::npos;
    if (memory && of_memory) throw OutOfMemory(told.what());
    throw;
  }
}

}  // namespace peal::nn
