// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/launch/spawned_rank.h>

#include <exception>
#include <memory>
#include <string_view>
#include <utility>

namespace peal::launch {
namespace {

thread_local int rank_of_thread = -1;

// With the rank, unless the message begins with who it was.
std::string named(int rank, std::string_view what) {
  return what.starts_with("[") ? std::string(what) : concat("[rank ", rank, "] ", what);
}

}  // namespace

int spawned_as() { return rank_of_thread; }

void run_spawned(const comm::ProcessGroup& group, const std::function<void(Job&)>& f,
                 const std::function<void(const std::string&, bool)>& failed) {
  const int before = std::exchange(rank_of_thread, group.rank());
  const std::shared_ptr<void> reset(nullptr, [before](void*) { rank_of_thread = before; });
  Job job(group);
  try {
    f(job);
  } catch (...) {
    const std::string message = named(job.rank(), words_of_failure());
    if (failed) failed(message, !group.poisoned());
    group.poison(message);  // before the job's end would say less
    std::throw_with_nested(Error(message));
  }
}

}  // namespace peal::launch
