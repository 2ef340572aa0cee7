// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/call.h>
#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace peal::comm {

std::int64_t CollectiveCall::elements() const {
  if (counts.empty()) return std::max(in.count, out.count);
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::optional<std::int64_t> in_place(const View& in, const View& out) {
  if (in.storage == nullptr || in.storage != out.storage) return std::nullopt;
  if (in.at >= out.at + out.count || out.at >= in.at + in.count) return std::nullopt;
  return in.at - out.at;
}

// A rank's own buffers may have another size.
std::int64_t CollectiveCall::bytes(int world) const {
  const std::int64_t rows = what == Collective::all_to_all ? world : 1;
  return elements() / rows * static_cast<std::int64_t>(size_of(dtype()));
}

bool CollectiveCall::writes_out(int rank) const {
  return what != Collective::broadcast || rank != root || !in_place(in, out);
}

void count_written(const StorageRef& storage, bool written, bool broadcast) {
  if (storage == nullptr) return;
  if (written) storage->bump_version();
  if (broadcast) storage->count_broadcast();
}

NativeCall native_call(const CollectiveCall& call, DeviceType where) {
  const bool widens = where == DeviceType::cpu && call.reduces();
  const DType dtype = widens ? computed_in(call.dtype()) : call.dtype();
  return {call.what, dtype, call.op, call.root, call.counts, nullptr, nullptr, call.factor};
}

bool scales_widened(const CollectiveCall& call) {
  return call.op == ReduceOp::premul_sum && computed_in(call.dtype()) != call.dtype();
}

namespace {

// Nothing where all are alike; the first few of many.
std::string parts(const std::vector<std::int64_t>& counts) {
  constexpr std::size_t most = 4;
  if (std::ranges::adjacent_find(counts, std::not_equal_to()) == counts.end()) return {};
  std::string text = " in parts of";
  for (std::size_t i = 0; i < std::min(most, counts.size()); ++i) text += concat(" ", counts[i]);
  return counts.size() > most ? text + " ..." : text;
}

}  // namespace

std::string describe(const CollectiveCall& call, std::uint64_t sequence, std::string_view label) {
  std::string text = concat(name(call.what), " #", sequence);
  if (call.what == Collective::barrier)
    return label.empty() ? text : concat(text, " (", label, ")");
  text += " (";
  if (call.reduces()) text += concat(name(call.op), " of ");
  text += concat(call.elements(), " ", call.dtype(), parts(call.counts));
  if (!call.gathered.empty()) text += concat(" in ", call.gathered.size(), " pieces");
  if (call.root != 0) text += concat(", root ", call.root);
  if (!label.empty()) text += concat("; ", label);
  return text + ")";
}

std::string describe(const MessageCall& call) {
  const std::string peer = call.peer == any_source ? "any rank" : concat("rank ", call.peer);
  return concat(call.verb(), call.sends() ? " to " : " from ", peer, " (", call.data.count, " ",
                call.data.dtype, ", tag ", call.tag, ")");
}

std::string describe(const ReplayCall& call, std::uint64_t sequence, std::string_view label) {
  const std::string text =
      concat("replay #", sequence, " of a graph with ", call.collectives, " collectives");
  return label.empty() ? text : concat(text, ", the first ", label);
}

std::string describe(const Call& call, std::uint64_t sequence, std::string_view label) {
  if (const auto* message = std::get_if<MessageCall>(&call)) return describe(*message);
  if (const auto* replay = std::get_if<ReplayCall>(&call)) {
    return describe(*replay, sequence, label);
  }
  return describe(std::get<CollectiveCall>(call), sequence, label);
}

Counted counted(const CollectiveCall& call, int world) {
  return {OperationCounters::kind(call.what), static_cast<std::uint64_t>(call.bytes(world))};
}

Counted counted(const Call& call, int world) {
  if (const auto* const message = std::get_if<MessageCall>(&call)) {
    return {OperationCounters::kind(message->direction), message->data.bytes()};
  }
  if (std::holds_alternative<ReplayCall>(call)) return {OperationCounters::replay, 0};
  return counted(std::get<CollectiveCall>(call), world);
}

std::uint64_t signature(const CollectiveCall& call) {
  std::uint64_t hash = 1;
  mix(hash, static_cast<std::uint64_t>(call.dtype()));
  mix(hash, static_cast<std::uint64_t>(call.what));
  mix(hash, static_cast<std::uint64_t>(call.op));
  mix(hash, static_cast<std::uint64_t>(call.root));
  mix(hash, call.purpose);
  for (const std::int64_t count : call.counts) mix(hash, static_cast<std::uint64_t>(count));
  for (const Piece& piece : call.gathered) mix(hash, static_cast<std::uint64_t>(piece.data.count));
  return hash;
}

std::uint64_t signature(const MessageCall& call) {
  std::uint64_t hash = 1;
  mix(hash, static_cast<std::uint64_t>(call.data.dtype));
  return hash;
}

std::shared_ptr<const Plan> plan_of(const MessageCall& message) {
  const Block all{0, message.data.count};
  const Step step = message.sends() ? send(message.peer, in(all)) : recv(message.peer, out(all));
  return std::make_shared<const Plan>(Program{.scratch = 0, .rounds = {{step}}}, "message");
}

}  // namespace peal::comm
