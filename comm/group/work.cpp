// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/work.h>

#include <atomic>
#include <chrono>
#include <utility>

namespace peal::comm {

Work Work::all(std::vector<Work> parts) {
  std::erase_if(parts, [](const Work& part) { return !part.operation_ && part.parts_.empty(); });
  if (parts.size() == 1) return std::move(parts.front());
  Work work;
  work.parts_ = std::move(parts);
  return work;
}

void Work::then(std::function<void()> f) const {
  if (operation_) return engine_->then(lane_, operation_, std::move(f));
  if (parts_.empty()) return f();
  const auto left = std::make_shared<std::atomic<std::size_t>>(parts_.size());
  const auto shared = std::make_shared<std::function<void()>>(std::move(f));
  for (const Work& part : parts_) {
    part.then([left, shared] {
      if (left->fetch_sub(1) == 1) (*shared)();
    });
  }
}

double Work::seconds() const {
  if (parts_.empty()) {
    if (!operation_ || !operation_->complete || operation_->captured) return 0;
    return std::chrono::duration<double>(operation_->finished - operation_->started).count();
  }
  double most = 0;  // the parts started together
  for (const Work& part : parts_) {
    const double took = part.seconds();
    if (took == 0) return 0;
    most = std::max(most, took);
  }
  return most;
}

}  // namespace peal::comm
