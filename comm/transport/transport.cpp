// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/transport.h>

#include <algorithm>

namespace peal::comm {

std::string describe(std::span<const Message> messages) {
  constexpr std::size_t shown = 3;
  std::string text;
  for (const Message& message : messages.first(std::min(shown, messages.size()))) {
    if (!text.empty()) text += ", ";
    const std::string peer =
        message.peer == any_source ? "any rank" : concat("rank ", message.peer);
    text += message.direction == Direction::recv ? concat(message.bytes, " B from ", peer)
                                                 : concat(peer, " to take ", message.bytes, " B");
  }
  if (messages.size() > shown) text += concat(", and ", messages.size() - shown, " more");
  return text;
}

}  // namespace peal::comm
