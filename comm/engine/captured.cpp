// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/engine/captured.h>
#include <peal/comm/schedule/mix.h>

#include <utility>

namespace peal::comm {

std::shared_ptr<CapturedOperations> CapturedOperations::create(Graph& graph,
                                                               std::shared_ptr<Lane> lane) {
  auto made = std::make_shared<CapturedOperations>(graph, std::move(lane));
  graph.at_end([made] { made->end(); });
  graph.at_replay([made] { made->before_replay(); }, [made] { made->after_replay(); });
  return made;
}

void CapturedOperations::add(const OperationRef& operation) {
  lane_->engine().capture(operation);
  mix(signature_, operation->channel.signature);
  operations_.push_back(operation);
}

// What nobody has waited for is joined now: a capture ends where it began, in one stream.
void CapturedOperations::end() {
  for (const OperationRef& operation : operations_) operation->execution.order();
  leave();
}

void CapturedOperations::leave() {
  ended_ = true;
  for (const OperationRef& operation : operations_) operation->execution.leave_capture();
}

OperationRef CapturedOperations::make_replay() const {
  Transport& transport = *lane_->device_transport();
  return std::make_shared<Operation>(lane_, ReplayCall{operations_.size()}, nullptr, transport,
                                     Channel{0, signature_}, 1, describe(*operations_.front()));
}

void CapturedOperations::before_replay() {
  lane_->engine().hand_over(lane_);
  replay_ = make_replay();
  replay_->execution.begin_replay();
}

void CapturedOperations::after_replay() {
  replay_->channel = lane_->engine().next_channel(*lane_, signature_);
  replay_->execution.end_replay();
  lane_->engine().submit(std::exchange(replay_, nullptr));
}

void CapturedOperations::drop() {
  try {
    graph_.drop("the process group of its collectives is gone");
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

}  // namespace peal::comm
