// SPDX-License-Identifier: Apache-2.0
// The device-aware transport (CUDA-aware MPI): moves what lies on a device over a transport of the
// CPU whose library reaches the device's memory itself, as MPI does where it is CUDA-aware. So
// nothing is copied to the CPU and back, and reductions run on the device.
//
// That library knows nothing of streams: it reads and writes when it is told to. A round is
// therefore held until the device has done what its stream was given before, the reductions of the
// round before it among them, and is done when its messages are there, not when it is in a queue:
// the host waits for the network here. Rounds match by channel, as they do below, and operations
// take no turns. REQUIRES: the transport below reaches the memory. Thread safety: as Transport.
#pragma once

#include <peal/comm/transport/transport.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::comm {

class DeviceAwareTransport : public Transport, private DeviceQueue {
 public:
  // Nobody else uses the transport below.
  DeviceAwareTransport(std::unique_ptr<Transport> below, Device device);
  ~DeviceAwareTransport() override;

  std::string_view name() const override { return name_; }
  int rank() const override { return below_->rank(); }
  int world() const override { return below_->world(); }
  void check_thread() const override { below_->check_thread(); }
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket ticket) override;
  bool cancel(Ticket ticket) override;
  std::vector<Message> open(Ticket ticket) const override;
  Limits limits() const override { return below_->limits(); }
  void set_hopeless(std::function<void()> hopeless) override {
    below_->set_hopeless(std::move(hopeless));
  }
  void abandon() override { abandoned_ = true; }
  // The library's collectives and memory are of the CPU.
  NativeCollectives* native() override { return nullptr; }
  DeviceQueue* queue() override { return this; }
  SymmetricMemory* memory() override { return nullptr; }

 private:
  Device device() const override { return device_; }
  Stream stream() const override { return stream_; }
  QueueTail& tail() override { return tail_; }
  bool stream_ordered() const override { return false; }
  bool capturable() const override { return false; }
  void check() override {}

  struct Held {
    Channel channel;
    std::vector<Message> round;
    Event ready;                    // on the stream: the messages' memory is as it should be
    std::optional<Ticket> below{};  // once it is posted
  };

  std::unique_ptr<Transport> below_;
  std::string name_;
  Device device_;
  Stream stream_;
  QueueTail tail_{stream_};
  std::unordered_map<Ticket, Held> held_;
  Ticket next_ = 1;
  bool abandoned_ = false;
};

}  // namespace peal::comm
