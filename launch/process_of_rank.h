// SPDX-License-Identifier: Apache-2.0
// The life of a rank that is a process (processes.h): how it finds the others, and what it tells
// its parent. Thread safety: a rank has its slot for itself.
#pragma once

#include <peal/launch/job.h>

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

namespace peal::launch {

// What a rank tells its parent.
struct Slot {
  std::atomic<bool> returned;   // f has, on all ranks
  std::atomic<bool> has_error;  // which follows
  char error[8192];
};
// What all share before they have a group; zeros at first. Their slots follow, by rank.
struct alignas(64) Page {
  std::atomic<int> port;   // of rank 0's store
  std::atomic<int> first;  // 1 + the rank that failed by itself before all others, of a group
  std::atomic<int> early;  // the same of those that had none yet: a dead one may have been why
};

class SharedPage {
 public:
  explicit SharedPage(int ranks);
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  Page* operator->() const { return page_; }
  Slot& slot(int rank) const { return reinterpret_cast<Slot*>(page_ + 1)[rank]; }

 private:
  std::size_t bytes_;
  Page* page_;
};

// What a rank is started with.
struct Start {
  int rank, world;
  const std::function<void(Job&)>& f;
  const SharedPage& page;
  std::string secret;
};

// In a child that fork() has just made. Ends it.
[[noreturn]] void be_rank(const Start& start, pid_t parent);

}  // namespace peal::launch
