// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/comm/group/group_body.h>
#include <peal/nn/parallel/any_rank.h>
#include <peal/nn/parallel/buffer_sync.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace peal::nn {

BufferSync::BufferSync(const Module& model, NamedTensors buffers, comm::ProcessGroup group,
                       std::uint64_t tag)
    : buffers_(std::move(buffers)),
      group_(std::move(group)),
      tag_(tag),
      equal_writes_(buffers_.size()) {
  const auto look = [&](Module module) {
    const auto* const norm = module.as<SyncBatchNorm>();
    if (norm == nullptr || &comm::body_of(norm->group()) != &comm::body_of(group_)) return;
    for (const auto& [tensor, writes] : norm->tracked()) {
      for (std::size_t i = 0; i < buffers_.size(); ++i) {
        if (buffers_[i].second.same_as(tensor)) equal_writes_[i] = writes;
      }
    }
  };
  for (const auto& [name, module] : model.named_modules()) look(module);
  for (const auto& [name, buffer] : buffers_) {
    seen_.push_back({buffer.storage(), buffer.storage()->version()});
  }
  choose_all();
}

bool BufferSync::written(std::size_t buffer) const {
  const StorageRef& storage = buffers_[buffer].second.storage();
  const Seen& seen = seen_[buffer];
  if (seen.storage.lock() != storage) return true;
  if (seen.version == storage->version()) return false;
  return doubtful_ || !equal_writes_[buffer] ||
         !equal_writes_[buffer]->cover(storage, seen.version);
}

void BufferSync::ask(std::string_view where) {
  if (Graph::capturing() != nullptr) return;
  std::vector<bool> mine;
  for (std::size_t i = 0; i < buffers_.size(); ++i) mine.push_back(written(i));
  bits_ = packed_bits(mine);
  text_.assign(where).append(", which buffers were written");
  asked_ = group_.all_reduce(bits_, comm::ReduceOp::bor, {text_, tag_});
}

// Writes are seen here also while they are captured, but by this rank alone.
void BufferSync::check_captured() const {
  std::string names;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (written(i) && !std::binary_search(written_.begin(), written_.end(), i)) {
      names += concat(names.empty() ? "" : ", ", buffers_[i].first);
    }
  }
  if (names.empty()) return;
  fail_everywhere(
      group_,
      concat("a captured step writes ", names,
             ", which no call before it wrote, so that the ranks have not agreed to make them "
             "equal; call the step as it is captured (in train() alike) before the capture"));
}

void BufferSync::settle() {
  if (Graph::capturing() != nullptr) {
    check_captured();
  } else {
    std::exchange(asked_, {}).wait();
    written_.clear();
    const std::vector<bool> anywhere = unpacked_bits(bits_, buffers_.size());
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (anywhere[i]) written_.push_back(i);
    }
  }
  send();
  doubtful_ = !all_write_;
}

void BufferSync::send_all() {
  choose_all();
  send();
}

void BufferSync::choose_all() {
  written_.resize(buffers_.size());
  std::iota(written_.begin(), written_.end(), std::size_t{0});
}

void BufferSync::send() {
  if (written_.empty()) return;
  std::vector<View> list;
  for (const std::size_t i : written_) list.push_back(buffers_[i].second);
  group_.broadcast_coalesced(list, root_, {"buffers", tag_}).wait();
  for (const std::size_t i : written_) {
    const StorageRef& storage = buffers_[i].second.storage();
    seen_[i] = {storage, storage->version()};
  }
}

}  // namespace peal::nn
