// SPDX-License-Identifier: Apache-2.0
// Object collectives: texts, whose lengths the ranks tell each other first.
#include <peal/autograd/core/error.h>
#include <peal/comm/group/group_body.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace peal::comm {
namespace {

// In storage that operations keep alive, should they fail while the transport still writes it.
Tensor bytes_of(const std::string& text) {
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(text.data()),
                                            text.size());
  return Tensor::from(bytes, {static_cast<std::int64_t>(text.size())}, Device{});
}

Tensor room_for(std::int64_t bytes) { return Tensor::empty({bytes}, DType::u8, Device{}); }

std::string text_of(const Tensor& bytes) {
  return {reinterpret_cast<const char*>(bytes.raw()), static_cast<std::size_t>(bytes.numel())};
}

std::vector<std::string> texts_of(const Tensor& joined, const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> texts;
  const char* at = reinterpret_cast<const char*>(joined.raw());
  for (const std::int64_t size : sizes) {
    texts.emplace_back(at, static_cast<std::size_t>(size));
    at += size;
  }
  return texts;
}

std::int64_t sum(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

std::vector<std::int64_t> everyones_size(const ProcessGroup& group, const std::string& mine) {
  const Tensor sizes = Tensor::zeros({group.world()}, DType::i64, Device{});
  sizes.data<std::int64_t>()[group.rank()] = static_cast<std::int64_t>(mine.size());
  group.all_gather(sizes, sizes.view().part(group.rank(), 1)).wait();
  return sizes.to_vector<std::int64_t>();
}

}  // namespace

std::vector<std::string> ProcessGroup::all_gather_object(const std::string& mine) const {
  const auto sizes = everyones_size(*this, mine);
  const Tensor joined = room_for(sum(sizes));
  all_gather_v(joined, bytes_of(mine), sizes).wait();
  return texts_of(joined, sizes);
}

std::vector<std::string> ProcessGroup::gather_object(const std::string& mine, int root) const {
  const auto sizes = everyones_size(*this, mine);
  const bool here = rank() == root;
  const Tensor joined = room_for(here ? sum(sizes) : 0);
  gather_v(joined, bytes_of(mine), sizes, root).wait();
  return here ? texts_of(joined, sizes) : std::vector<std::string>();
}

std::string ProcessGroup::scatter_object(const std::vector<std::string>& texts, int root) const {
  const bool here = rank() == root;
  const Tensor sizes = Tensor::zeros({world()}, DType::i64, Device{});
  std::string joined;
  const auto count = static_cast<std::int64_t>(texts.size());
  if (here && count != world()) {
    sizes.data<std::int64_t>()[0] = -1 - count;  // the others wait for a word
  } else if (here) {
    for (std::size_t r = 0; r < texts.size(); ++r) {
      sizes.data<std::int64_t>()[r] = static_cast<std::int64_t>(texts[r].size());
      joined += texts[r];
    }
  }
  broadcast(sizes, root).wait();
  const auto counts = sizes.to_vector<std::int64_t>();
  PEAL_CHECK(counts[0] >= 0, "scatter_object: expected a text for each of ", world(),
             " ranks, got ", -1 - counts[0], " on rank ", root);
  const Tensor mine = room_for(counts[static_cast<std::size_t>(rank())]);
  scatter_v(mine, bytes_of(joined), counts, root).wait();
  return text_of(mine);
}

std::string ProcessGroup::broadcast_object(const std::string& mine, int root) const {
  const Tensor size = Tensor::scalar(static_cast<std::int64_t>(mine.size()), Device{});
  broadcast(size, root).wait();
  const Tensor text = rank() == root ? bytes_of(mine) : room_for(size.item<std::int64_t>());
  broadcast(text, root).wait();
  return text_of(text);
}

void ProcessGroup::send_object(const std::string& text, int to, int tag) const {
  send(Tensor::scalar(static_cast<std::int64_t>(text.size()), Device{}), to, tag).wait();
  send(bytes_of(text), to, tag).wait();
}

std::string ProcessGroup::recv_object(int from, int tag) const {
  const Tensor size = Tensor::scalar(std::int64_t{0}, Device{});
  const Work first = recv(size, from, tag);
  first.wait();
  const Tensor text = room_for(size.item<std::int64_t>());
  recv(text, from == any_source ? first.source() : from, tag).wait();
  return text_of(text);
}

}  // namespace peal::comm
