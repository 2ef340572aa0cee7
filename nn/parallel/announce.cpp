// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/group_body.h>
#include <peal/nn/parallel/announce.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

using Listener = std::function<void(const Announcement&)>;

struct OfGroup {
  std::shared_ptr<const Listener> listener;
  std::vector<std::shared_ptr<const BeforeLayer>> before_layers;
};

// Ranks may be threads: each has a group of its own.
struct Listeners {
  std::atomic<int> count{0};
  std::mutex mutex;
  std::unordered_map<const comm::GroupBody*, OfGroup> by_group;
};

// Never destroyed: a wrapper may be a global of the program's, and go after those of this file.
Listeners& listeners() {
  static auto& all = *new Listeners;
  return all;
}

// A copy of that of the group's: who is called may come to announce something in turn.
template <class Part>
Part copy_of(const comm::ProcessGroup& group, Part OfGroup::*part) {
  Listeners& all = listeners();
  if (all.count.load(std::memory_order_relaxed) == 0) return {};
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_group.find(&body_of(group));
  return found == all.by_group.end() ? Part() : found->second.*part;
}

// Lets `change` add to those of the group; what is returned undoes it by `undo`.
template <class Change, class Undo>
std::shared_ptr<void> add(const comm::ProcessGroup& group, const Change& change, Undo undo) {
  const auto added = std::make_shared<bool>(false);
  std::shared_ptr<void> until(nullptr, [group, added, undo = std::move(undo)](void*) {
    if (!*added) return;
    Listeners& all = listeners();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_group.find(&body_of(group));
    undo(found->second);
    if (!found->second.listener && found->second.before_layers.empty()) all.by_group.erase(found);
    --all.count;
  });
  Listeners& all = listeners();
  const std::lock_guard lock(all.mutex);
  change(all.by_group[&body_of(group)]);
  ++all.count;
  *added = true;
  return until;
}

}  // namespace

void announce(const comm::ProcessGroup& group, const Announcement& what, std::string_view layer) {
  using What = Announcement::What;
  if (what.what == What::all_gather || what.what == What::all_reduce) {
    call_before_layer(group, layer);
  }
  const auto listener = copy_of(group, &OfGroup::listener);
  if (listener) (*listener)(what);
}

std::shared_ptr<void> listen(const comm::ProcessGroup& group, Listener listener) {
  return add(
      group,
      [&](OfGroup& here) {
        PEAL_CHECK(!here.listener, "another Join over this group is under way; let it go first");
        here.listener = std::make_shared<const Listener>(std::move(listener));
      },
      [](OfGroup& here) { here.listener = nullptr; });
}

std::shared_ptr<void> before_layers(const comm::ProcessGroup& group, BeforeLayer f) {
  const auto shared = std::make_shared<const BeforeLayer>(std::move(f));
  return add(
      group, [&](OfGroup& here) { here.before_layers.push_back(shared); },
      [shared](OfGroup& here) { std::erase(here.before_layers, shared); });
}

void call_before_layer(const comm::ProcessGroup& group, std::string_view layer) {
  for (const auto& f : copy_of(group, &OfGroup::before_layers)) (*f)(layer);
}

}  // namespace peal::nn
