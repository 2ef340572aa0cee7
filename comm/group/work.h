// SPDX-License-Identifier: Apache-2.0
// Work: a collective under way, or several as one. The buffers belong to it until wait() returns;
// on a device, until what the streams held when it returned is done. Letting go of a Work waits for
// nothing: the operation goes on. In a graph that is captured (captured.h) wait() is all that there
// is; the others are an Error. Thread safety: the thread that made it.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/comm/engine/engine.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

namespace peal::comm {

class Work {
 public:
  Work() = default;  // done
  Work(std::shared_ptr<Engine> engine, std::shared_ptr<Lane> lane, OperationRef operation)
      : engine_(std::move(engine)), lane_(std::move(lane)), operation_(std::move(operation)) {}
  // All of them as one.
  static Work all(std::vector<Work> parts);

  // Until later work on the calling thread's current stream may use the result; on the CPU, until
  // the result is there. Throws what went wrong, on any rank, as far as it is known.
  void wait() const {
    if (operation_) {
      engine_->wait(lane_, operation_);
      operation_->execution.order();
    }
    for (const Work& part : parts_) part.wait();
  }
  // As wait(), and until the host may use the result.
  void synchronize() const {
    wait();
    if (operation_) engine_->synchronize(lane_, operation_);
    for (const Work& part : parts_) part.synchronize();
  }
  // True when it is done, on the device too, or has failed (wait() then throws). Makes progress.
  bool test() const {
    if (operation_ && !engine_->test(lane_, operation_)) return false;
    return std::all_of(parts_.begin(), parts_.end(), [](const Work& part) { return part.test(); });
  }
  // Runs f on the thread that advances the engine, after this and all earlier work of the group.
  // Not run when the work fails. On a device it is run when the result is there.
  void then(std::function<void()> f) const;
  // A receive's: the rank of its group that sent, once it is done. Error for other work.
  int source() const {
    const bool over =
        operation_ && (operation_->retired ? !operation_->error : operation_->ordered.load());
    PEAL_CHECK(over && operation_->execution.call().verb == "recv",
               "Work::source: this is no receive that is done");
    return operation_->execution.source();
  }
  // How long it took from its start to its last message, in seconds; 0 while it is under way.
  double seconds() const;

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Lane> lane_;
  OperationRef operation_;
  std::vector<Work> parts_;  // where it is several
};

}  // namespace peal::comm
