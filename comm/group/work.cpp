// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/branch.h>
#include <peal/comm/engine/engine.h>
#include <peal/comm/group/work.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace peal::comm {

struct Work::Sequel {
  Work first;
  Branch branch;
  Work next{};  // once it is started
  bool started = false;
  std::vector<std::function<void()>> after{};  // of the next, that came before it

  void start(const std::function<Work()>& f) {
    {
      const Branch::Scope numbers(&branch);
      next = f();
    }
    started = true;
    for (auto& each : std::exchange(after, {})) next.run_after(std::move(each));
  }
  void run_after(std::function<void()> f) {
    if (started) return next.run_after(std::move(f));
    after.push_back(std::move(f));
  }
};

Work::Work(const Work& other)
    : lane_(other.lane_), parts_(other.parts_), sequel_(other.sequel_), at_once_(other.at_once_) {
  other.need_operation();  // copies share it
  operation_ = other.operation_;
}

void Work::need_operation() const {
  if (at_once_.empty() || operation_) return;
  if (auto lane = Lane::find(lane_)) operation_ = operation_over(std::move(lane), at_once_);
}

Work Work::all(std::vector<Work> parts) {
  Work work;
  for (const Work& part : parts) {
    if (part.lane_ != 0) work.lane_ = part.lane_;
  }
  std::erase_if(parts, [](const Work& part) { return part.is_nothing() && part.at_once_.empty(); });
  if (parts.size() == 1) return std::move(parts.front());
  work.parts_ = std::move(parts);
  return work;
}

void Work::wait() const {
  if (operation_) {
    operation_->lane->engine().wait(*operation_);
    operation_->execution.order();
  }
  for (const Work& part : parts_) part.wait();
  if (sequel_) {
    sequel_->first.synchronize();
    sequel_->next.wait();
  }
}

void Work::wait(std::chrono::milliseconds timeout) const {
  using std::chrono::milliseconds;
  timeout = std::max(timeout, milliseconds(0));
  const auto end = end_after(timeout);
  const auto left = [&] {
    return std::max(milliseconds(0),
                    std::chrono::ceil<milliseconds>(end - Operation::Clock::now()));
  };
  if (operation_) {
    operation_->lane->engine().wait(*operation_, timeout);
    operation_->execution.order();
  }
  for (const Work& part : parts_) part.wait(left());
  if (sequel_) {
    sequel_->first.wait(left());
    sequel_->first.synchronize();
    sequel_->next.wait(left());
  }
}

void Work::synchronize() const {
  wait();
  if (operation_) operation_->lane->engine().synchronize(*operation_);
  for (const Work& part : parts_) part.synchronize();
  if (sequel_) sequel_->next.synchronize();
}

bool Work::test() const {
  if (operation_ && !operation_->lane->engine().test(*operation_)) return false;
  if (sequel_ && !(sequel_->first.test() && sequel_->next.test())) return false;
  return std::all_of(parts_.begin(), parts_.end(), [](const Work& part) { return part.test(); });
}

void Work::run_after(std::function<void()> f) const {
  need_operation();
  if (operation_) return operation_->lane->engine().then(operation_, std::move(f));
  if (sequel_) {
    return sequel_->first.run_after([sequel = sequel_, f = std::move(f)] { sequel->run_after(f); });
  }
  if (parts_.empty()) return f();
  const auto left = std::make_shared<std::atomic<std::size_t>>(parts_.size());
  const auto shared = std::make_shared<std::function<void()>>(std::move(f));
  for (const Work& part : parts_) {
    part.run_after([left, shared] {
      if (left->fetch_sub(1) == 1) (*shared)();
    });
  }
}

// Null of nothing, and of what was over at once in a group that has gone.
const Operation* Work::any_operation() const {
  need_operation();
  if (operation_) return operation_.get();
  if (sequel_) return sequel_->first.any_operation();
  for (const Work& part : parts_) {
    if (const Operation* const found = part.any_operation()) return found;
  }
  return nullptr;
}

bool Work::is_in_a_queue() const {
  if (operation_) return operation_->execution.stream_ordered();
  if (sequel_) return sequel_->first.is_in_a_queue();
  return std::ranges::any_of(parts_, [](const Work& part) { return part.is_in_a_queue(); });
}

Work Work::followed_by(std::function<Work()> f) const {
  const Operation* const operation = any_operation();
  if (operation == nullptr) {
    const auto lane = Lane::find(lane_);
    if (!lane) return f();
    Branch branch = lane->engine().branch(*lane);  // as on the ranks where it is something
    const Branch::Scope numbers(&branch);
    return f();
  }
  if (is_in_a_queue()) {  // which is fed in one order on all ranks
    synchronize();
    return f();
  }
  Work both;
  Lane& lane = *operation->lane;
  both.sequel_ = std::make_shared<Sequel>(Sequel{*this, lane.engine().branch(lane)});
  run_after([sequel = both.sequel_, f = std::move(f)] { sequel->start(f); });
  return both;
}

int Work::source() const {
  const auto* const message =
      operation_ ? std::get_if<MessageCall>(&operation_->execution.call()) : nullptr;
  const bool over = message != nullptr && !message->sends() &&
                    (operation_->retired ? !operation_->error : operation_->ordered.load());
  PEAL_CHECK(over, "Work::source: this is no receive that is done");
  return operation_->execution.source();
}

std::string Work::algorithm() const {
  if (!operation_) return std::string(at_once_);
  return operation_->execution.algorithm();
}

}  // namespace peal::comm
