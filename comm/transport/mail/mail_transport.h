// SPDX-License-Identifier: Apache-2.0
// The mail transport: ranks are processes, a message goes over the lines of a mailroom
// (mailroom.h): through memory that both have where they are on one node, over TCP between nodes.
// Sub-groups send over the mailroom of their world. Collectives of a node seldom need it: they run
// in the group's window (memory/window.h), and this carries messages, what continuations start, and
// how groups come about.
//
// Thread safety: as Transport.
#pragma once

#include <peal/comm/transport/mail/mailroom.h>
#include <peal/comm/transport/transport.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace peal::comm {

class MailTransport : public Transport {
 public:
  // Of all ranks of the mailroom. `name`, which outlives it: what the lines are.
  MailTransport(std::shared_ptr<Mailroom> mailroom, std::string_view name);
  ~MailTransport() override;
  MailTransport(const MailTransport&) = delete;
  MailTransport& operator=(const MailTransport&) = delete;

  std::string_view name() const override { return name_; }
  int rank() const override { return group_.rank; }
  int world() const override { return static_cast<int>(group_.members.size()); }
  Limits limits() const override { return {}; }
  void check_thread() const override {}
  bool travels_beside(bool several_nodes) const override { return several_nodes; }
  std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) override;
  Ticket post(Channel channel, std::span<const Message> round) override;
  bool test(Ticket ticket) override;
  bool cancel(Ticket ticket) override;
  std::vector<Message> open(Ticket ticket) const override;
  void set_hopeless(std::function<void()> hopeless) override { hopeless_ = std::move(hopeless); }
  // The ranks of other nodes are told why.
  void abandon() override;
  void leave() override { mailroom_->leave(); }
  NativeCollectives* native() override { return nullptr; }
  DeviceQueue* queue() override { return nullptr; }
  SymmetricMemory* memory() override { return nullptr; }

 private:
  MailTransport(std::shared_ptr<Mailroom> mailroom, std::string_view name, MailGroup group);

  std::shared_ptr<Mailroom> mailroom_;
  std::string_view name_;
  MailGroup group_;
  std::function<void()> hopeless_ = [] {};
};

}  // namespace peal::comm
