// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/call.h>

#include <algorithm>

namespace peal::comm {

NativeCall native_call(const Call& call, DeviceType where) {
  const bool widens = where == DeviceType::cpu && call.reduces();
  const DType dtype = widens ? computed_in(call.dtype()) : call.dtype();
  return {call.what, dtype, call.op, call.root, call.counts, nullptr, nullptr, call.factor};
}

std::string describe(const Call& call, std::uint64_t sequence, std::string_view label) {
  if (call.point_to_point()) {
    const std::string peer = call.peer == any_source ? "any rank" : concat("rank ", call.peer);
    return concat(call.verb, call.verb == "send" ? " to " : " from ", peer, " (",
                  call.in.count + call.out.count, " ", call.dtype(), ", tag ", call.tag, ")");
  }
  std::string text = concat(name(call.what), " #", sequence);
  if (call.replayed > 0) {
    return concat("replay #", sequence, " of a graph with ", call.replayed,
                  " collectives, the first ", label);
  }
  if (call.what == Collective::barrier) return text;
  std::int64_t count = call.counts.empty() ? std::max(call.in.count, call.out.count) : 0;
  for (const std::int64_t part : call.counts) count += part;
  text += " (";
  if (call.reduces()) text += concat(name(call.op), " of ");
  text += concat(count, " ", call.dtype());
  if (!call.gathered.empty()) text += concat(" in ", call.gathered.size(), " pieces");
  if (call.root != 0) text += concat(", root ", call.root);
  if (!label.empty()) text += concat("; ", label);
  return text + ")";
}

}  // namespace peal::comm
