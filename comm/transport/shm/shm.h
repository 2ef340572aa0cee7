// SPDX-License-Identifier: Apache-2.0
// The shared-memory transport: ranks are processes of one node, a message is copied into memory
// that both have and out of it again (mailroom.h). Sub-groups send over the mailroom of their
// world. Collectives of a node seldom need it: they run in the group's window (memory/window.h),
// and this carries messages, what continuations start, and how groups come about.
//
// Thread safety: as Transport.
#pragma once

#include <peal/comm/transport/shm/mailroom.h>

#include <memory>
#include <vector>

namespace peal::comm {

class ShmTransport : public Transport {
 public:
  // Of all ranks of the mailroom.
  explicit ShmTransport(std::shared_ptr<Mailroom> mailroom);
  ~ShmTransport() override;
  ShmTransport(const ShmTransport&) = delete;
  ShmTransport& operator=(const ShmTransport&) = delete;

  std::string_view name() const override { return "shm"; }
  int rank() const override { return group_.rank; }
  int world() const override { return static_cast<int>(group_.members.size()); }
  Limits limits() const override { return {}; }
  void check_thread() const override {}
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket ticket) override;
  bool cancel(Ticket ticket) override;
  std::vector<Message> open(Ticket ticket) const override;
  void set_hopeless(std::function<void()>) override {}
  void abandon() override {}
  NativeCollectives* native() override { return nullptr; }
  DeviceQueue* queue() override { return nullptr; }
  SymmetricMemory* memory() override { return nullptr; }

 private:
  ShmTransport(std::shared_ptr<Mailroom> mailroom, Mailroom::Group group);

  std::shared_ptr<Mailroom> mailroom_;
  Mailroom::Group group_;
};

}  // namespace peal::comm
