// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/engine/branch.h>
#include <peal/comm/engine/lane.h>
#include <peal/comm/engine/operation.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace peal::comm {
namespace {

// What others read of a call that is over: two words. Of a collective what it was, and how many
// elements; of a replay that it was one, and of how many collectives.
constexpr std::uint64_t is_replay = std::uint64_t{1} << 24;
// Of a message its direction and its peer in the first, its size and its tag in the second.
constexpr std::uint64_t is_a_message = std::uint64_t{1} << 25;
constexpr int tag_bits = 48;

// What is too long ends in "...".
template <std::size_t size>
void put(char (&place)[size], std::string_view text) {
  constexpr std::string_view dots = "...";
  const bool whole = text.size() < size;
  const std::size_t kept = whole ? text.size() : size - 1 - dots.size();
  std::memcpy(place, text.data(), kept);
  if (!whole) std::memcpy(place + kept, dots.data(), dots.size());
}

}  // namespace

Operation::Operation(std::shared_ptr<Lane> its_lane, Call&& call, std::shared_ptr<const Plan> plan,
                     Transport& transport, Channel channel, std::size_t segment,
                     std::string_view label)
    : lane(std::move(its_lane)),
      channel(channel),
      in_turn(!is_message(call) && Branch::current() == nullptr),
      label(label),
      execution(std::move(call), std::move(plan), transport, channel, lane->copies(), segment,
                lane->window()),
      buffers(execution.call(), transport.rank()) {}

OperationRef operation_over(std::shared_ptr<Lane> lane, std::string_view algorithm) {
  Transport& transport = lane->transport();
  auto plan = std::make_shared<const Plan>(Program{}, std::string(algorithm));
  auto over = std::make_shared<Operation>(std::move(lane), CollectiveCall{}, std::move(plan),
                                          transport, Channel{}, 0, "");
  over->complete = over->retired = over->settled = true;
  return over;
}

std::string describe(const Operation& operation) {
  return describe(operation.execution.call(), operation.channel.sequence, operation.label);
}

Row row_of(const Operation& operation, std::uint64_t group, std::string_view needs) {
  Row row;
  row.group = group;
  row.sequence = operation.channel.sequence;
  row.signature = operation.channel.signature;
  const std::string text = describe(operation);
  put(row.text, text);
  put(row.waits_for, needs);
  return row;
}

bool is_overdue(Operation::Clock::duration idle, Operation::Clock::time_point now,
                std::chrono::milliseconds deadline, const Control& control,
                Operation::Clock::time_point& last_work) {
  if (idle >= deadline / 2 && control.anyone_works(true)) last_work = now;
  return idle >= deadline && now - last_work >= deadline / 2;
}

Operation::Clock::time_point end_after(std::chrono::milliseconds timeout) {
  using Clock = Operation::Clock;
  const auto now = Clock::now();
  const auto most = std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - now);
  return timeout < most ? now + timeout : Clock::time_point::max();
}

std::string seconds(Operation::Clock::duration time) {
  const auto milliseconds = std::chrono::round<std::chrono::milliseconds>(time);
  return concat(static_cast<double>(milliseconds.count()) / 1e3);
}

std::string waits(std::string_view needs, const Control& control) {
  return concat(needs.empty() ? "" : "; it waits for ", needs,
                "; what the ranks of this node wait for:", control.describe());
}

std::string overdue(const Operation& operation, std::string_view who,
                    std::chrono::milliseconds deadline, std::string_view needs,
                    const Control& control) {
  return concat("[comm] ", who, ": ", describe(operation), " has not moved for ", seconds(deadline),
                " s (PEAL_TIMEOUT)", waits(needs, control));
}

Finished finished(const Operation& operation) {
  const Call& any = operation.execution.call();
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  if (const auto* replay = std::get_if<ReplayCall>(&any)) {
    return {operation.channel.signature, {is_replay, word(replay->collectives)}};
  }
  if (const auto* message = std::get_if<MessageCall>(&any)) {
    return {operation.channel.signature,
            {is_a_message | word(message->sends()) | word(message->data.dtype) << 16 |
                 word(static_cast<std::uint32_t>(message->peer)) << 32,
             word(message->data.count) | word(message->tag) << tag_bits}};
  }
  return finished(std::get<CollectiveCall>(any), operation.channel.signature);
}

Finished finished(const CollectiveCall& call, std::uint64_t signature) {
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  return {signature,
          {word(call.what) | word(call.op) << 8 | word(call.dtype()) << 16 |
               word(static_cast<std::uint32_t>(call.root)) << 32,
           word(call.elements())}};
}

namespace {

std::string describe(const Finished& what, std::uint64_t sequence, std::string_view label) {
  const std::uint64_t word = what.call[0];
  const auto dtype = static_cast<DType>(word >> 16 & 0xff);
  if ((word & is_replay) != 0) return describe(ReplayCall{what.call[1]}, sequence, label);
  if ((word & is_a_message) != 0) {
    const std::uint64_t count = what.call[1] & ((std::uint64_t{1} << tag_bits) - 1);
    return describe(MessageCall{.direction = (word & 1) != 0 ? Direction::send : Direction::recv,
                                .data = {.count = static_cast<std::int64_t>(count), .dtype = dtype},
                                .peer = static_cast<int>(word >> 32),
                                .tag = static_cast<int>(what.call[1] >> tag_bits)});
  }
  const CollectiveCall call{.what = static_cast<Collective>(word & 0xff),
                            .in = {.dtype = dtype},
                            .op = static_cast<ReduceOp>(word >> 8 & 0xff),
                            .root = static_cast<int>(word >> 32),
                            .counts = {static_cast<std::int64_t>(what.call[1])}};
  return describe(call, sequence, label);
}

}  // namespace

std::string describe(const Finished& what, std::uint64_t sequence) {
  return describe(what, sequence, {});
}
std::string describe(const FlightRow& row) { return describe(row.what, row.sequence, row.label); }
bool is_message(const FlightRow& row) { return (row.what.call[0] & is_a_message) != 0; }

}  // namespace peal::comm
