// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/stream.h>
#include <peal/bench/perf/measure.h>
#include <peal/bench/perf/osu.h>

#include <chrono>
#include <memory>

namespace peal::bench {
namespace {

using Clock = std::chrono::steady_clock;

class Messages {
 public:
  Messages(const launch::Job& job, const Operation& operation, const OsuOptions& options,
           Device device)
      : group_(job.group()),
        options_(options),
        device_(device),
        window_(options.test == "latency" ? 1 : options.window),
        test_{&operation, options.dtype(), comm::ReduceOp::sum, 0, {}, false},
        values_(options.dtype(), comm::ReduceOp::sum, 2),
        buffers_(group_, device, options.last * window_, 0, false),
        ack_(Tensor::zeros({1}, DType::i32, device)) {}

  std::optional<OsuLine> run(std::int64_t bytes) {
    const std::int64_t count = bytes / static_cast<std::int64_t>(size_of(test_.dtype));
    if (count == 0) return std::nullopt;
    test_.layout = test_.operation->layout(count, 2);
    const bool latency = options_.test == "latency", both = options_.test == "bibw";
    const auto loops = latency ? options_.loops(bytes, {100, 10000}, {10, 1000})
                               : options_.loops(bytes, {10, 100}, {2, 20});
    const bool receives = latency || both || group_.rank() == 1;
    std::vector<Place> places;
    for (int i = 0; i < window_; ++i) places.push_back(buffers_.place(test_, i));
    double seconds = 0;
    std::int64_t wrong = 0;
    for (int i = -loops.warm_up; i < loops.timed; ++i) {
      const bool fresh = !options_.clean || i == -loops.warm_up;
      if (fresh) {
        ++filling_;
        for (const Place& place : places) buffers_.fill(test_, place, values_, filling_);
        group_.barrier().wait();
      }
      const auto start = Clock::now();
      if (latency) {
        ping_pong(places[0]);
      } else {
        stream(places, both);
      }
      synchronize(device_);
      if (i >= 0) seconds += std::chrono::duration<double>(Clock::now() - start).count();
      if (!options_.validate || !receives) continue;
      for (const Place& place : places) wrong += buffers_.wrong(test_, place, values_, filling_);
    }
    // Rank 0's clock says it, as it began and ended.
    const double each = over_ranks(group_, seconds, 0) / loops.timed;
    const double moved = static_cast<double>(bytes) / 1e6 * window_ * (both ? 2 : 1);
    OsuLine line{.bytes = bytes, .columns = {latency ? each * 1e6 / 2 : moved / each}};
    line.wrong = static_cast<std::int64_t>(over_ranks(group_, static_cast<double>(wrong), 3));
    return line;
  }

 private:
  void ping_pong(const Place& place) {
    if (group_.rank() == 0) {
      group_.send(place.send, 1).wait();
      group_.recv(place.recv, 1).wait();
    } else {
      group_.recv(place.recv, 0).wait();
      group_.send(place.send, 0).wait();
    }
  }

  // A window of messages to rank 1, and, `both`, one from it; then rank 1 says that it has them.
  void stream(const std::vector<Place>& places, bool both) {
    const int peer = 1 - group_.rank();
    std::vector<comm::P2POp> messages;
    for (const Place& place : places) {
      if (both || peer == 0) messages.push_back({comm::Direction::recv, place.recv, peer});
    }
    for (const Place& place : places) {
      if (both || peer == 1) messages.push_back({comm::Direction::send, place.send, peer});
    }
    group_.batch_isend_irecv(messages).wait();
    if (peer == 1) {
      group_.recv(ack_, peer, 1).wait();
    } else {
      group_.send(ack_, peer, 1).wait();
    }
  }

  const comm::ProcessGroup& group_;
  const OsuOptions& options_;
  Device device_;
  int window_;
  Case test_;
  Values values_;
  Buffers buffers_;
  Tensor ack_;
  int filling_ = 0;
};

}  // namespace

OsuTest osu_messages(const launch::Job& job, const Operation& operation, const OsuOptions& options,
                     Device device) {
  const auto run = std::make_shared<Messages>(job, operation, options, device);
  return [run](std::int64_t bytes) { return run->run(bytes); };
}

}  // namespace peal::bench
