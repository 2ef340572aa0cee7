// SPDX-License-Identifier: Apache-2.0
// HookList: functions that are called one after the other (callbacks), in the order in which they
// were added. While they run one may add and remove others, itself too: what is added waits for the
// next time, what is removed does not run any more. Running copies nothing. Thread safety: one
// thread.
#pragma once

#include <cstdint>
#include <list>
#include <utility>

namespace peal {

template <class Hook>
class HookList {
 public:
  bool empty() const { return hooks_.empty(); }
  // `id` is not 0, and larger than those before it.
  void add(std::uint64_t id, Hook hook) {
    hooks_.push_back({id, std::move(hook)});
    newest_ = id;
  }
  void remove(std::uint64_t id) {
    for (Entry& entry : hooks_) {
      if (entry.id == id) entry.id = 0;
    }
    if (running_ == 0) clean();
  }
  // f(hook) for each.
  template <class F>
  void run(F&& f) {
    if (hooks_.empty()) return;
    const End end(*this);
    const std::uint64_t newest = newest_;
    for (Entry& entry : hooks_) {
      if (entry.id != 0 && entry.id <= newest) f(entry.hook);
    }
  }

 private:
  struct Entry {
    std::uint64_t id;  // 0: removed
    Hook hook;
  };
  struct End {
    explicit End(HookList& list) : list(list) { ++list.running_; }
    ~End() {
      if (--list.running_ == 0) list.clean();
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;
    HookList& list;
  };
  void clean() {
    hooks_.remove_if([](const Entry& entry) { return entry.id == 0; });
  }

  std::list<Entry> hooks_;  // which stay where they are while they run
  std::uint64_t newest_ = 0;
  int running_ = 0;
};

}  // namespace peal
