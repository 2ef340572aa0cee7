// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/pending_buffers.h>

#include <algorithm>
#include <variant>

namespace peal::comm {

PendingBuffers::PendingBuffers(const Call& call, int rank) {
  if (const auto* const message = std::get_if<MessageCall>(&call)) {
    add(message->data, !message->sends());
    return;
  }
  const auto* const collective = std::get_if<CollectiveCall>(&call);
  if (collective == nullptr) return;  // a replay's are the graph's
  const bool reads = collective->reads_in(rank), writes = collective->writes_out(rank);
  uses_.reserve(2 + collective->gathered.size() + collective->scattered.size());
  if (reads) add(collective->in, false);
  if (writes) add(collective->out, true);
  for (const Piece& piece : collective->gathered) {
    if (reads) add(piece.data, false);
  }
  for (const Piece& piece : collective->scattered) {
    if (writes) add(piece.data, true);
  }
}

void PendingBuffers::add(const View& view, bool writes) {
  if (view.count == 0 || !view.storage || !view.storage->has_bytes()) return;
  const std::byte* const begin = view.data();
  uses_.push_back({&view, begin, begin + view.bytes(), writes});
}

void PendingBuffers::begin(bool in_order) {
  for (Use& use : uses_) {
    if (!in_order) use.version = use.view->storage->version();
  }
}

bool PendingBuffers::clash(const PendingBuffers& other) const {
  return std::ranges::any_of(uses_, [&](const Use& mine) {
    return std::ranges::any_of(other.uses_, [&](const Use& theirs) {
      const bool apart = mine.begin >= theirs.end || theirs.begin >= mine.end;
      return !apart && (mine.writes || theirs.writes);
    });
  });
}

std::string PendingBuffers::written() const {
  for (const Use& use : uses_) {
    const View& view = *use.view;
    const bool whole = view.at == 0 && view.bytes() == view.storage->bytes();
    if (whole && use.version && view.storage->version() != *use.version) {
      return concat(view.count, " ", view.dtype);
    }
  }
  return {};
}

}  // namespace peal::comm
