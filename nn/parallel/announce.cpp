// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/group_body.h>
#include <peal/nn/parallel/announce.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace peal::nn {
namespace {

using Listener = std::function<void(const Announcement&)>;

// Ranks may be threads: each has a group of its own.
struct Listeners {
  std::atomic<int> count{0};
  std::mutex mutex;
  std::unordered_map<const comm::GroupBody*, std::shared_ptr<const Listener>> by_group;
};

Listeners& listeners() {
  static Listeners all;
  return all;
}

}  // namespace

void announce(const comm::ProcessGroup& group, const Announcement& what) {
  Listeners& all = listeners();
  if (all.count.load(std::memory_order_relaxed) == 0) return;
  std::shared_ptr<const Listener> listener;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_group.find(&body_of(group));
    if (found != all.by_group.end()) listener = found->second;
  }
  if (listener) (*listener)(what);
}

std::shared_ptr<void> listen(const comm::ProcessGroup& group, Listener listener) {
  Listeners& all = listeners();
  const std::lock_guard lock(all.mutex);
  const bool added =
      all.by_group.emplace(&body_of(group), std::make_shared<const Listener>(std::move(listener)))
          .second;
  PEAL_CHECK(added, "another Join over this group is under way; let it go first");
  ++all.count;
  return {nullptr, [group](void*) {
            Listeners& all = listeners();
            const std::lock_guard lock(all.mutex);
            all.by_group.erase(&body_of(group));
            --all.count;
          }};
}

}  // namespace peal::nn
