// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/graph.h>
#include <peal/nn/parallel/buffer_sync.h>
#include <peal/nn/parallel/fail_everywhere.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace peal::nn {

BufferSync::BufferSync(NamedTensors buffers, comm::ProcessGroup group, std::uint64_t tag)
    : buffers_(std::move(buffers)), group_(std::move(group)), tag_(tag) {
  for (const auto& [name, buffer] : buffers_) {
    seen_.push_back({buffer.storage(), buffer.storage()->version()});
  }
  choose_all();
}

bool BufferSync::written(std::size_t buffer) const {
  const StorageRef& storage = buffers_[buffer].second.storage();
  const Seen& seen = seen_[buffer];
  return seen.version != storage->version() || seen.storage.lock() != storage;
}

void BufferSync::ask() {
  if (Graph::capturing() != nullptr) return;
  bits_ =
      Tensor::zeros({static_cast<std::int64_t>(buffers_.size() / 64 + 1)}, DType::i64, Device{});
  auto* const words = bits_.data<std::int64_t>();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (written(i)) words[i / 64] |= std::int64_t{1} << i % 64;
  }
  asked_ = group_.all_reduce(bits_, comm::ReduceOp::bor, {"which buffers were written", tag_});
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
    const auto* const words = bits_.data<std::int64_t>();
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if ((words[i / 64] >> i % 64 & 1) != 0) written_.push_back(i);
    }
  }
  send();
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
