// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/agree.h>

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

// What a list of tensors may take as one message, beside its own memory.
constexpr std::size_t together = std::size_t{16} << 20;

// The first line in which two texts differ, of each.
std::pair<std::string, std::string> first_difference(std::string_view a, std::string_view b) {
  while (true) {
    const auto end_a = a.find('\n'), end_b = b.find('\n');
    const std::string_view line_a = a.substr(0, end_a), line_b = b.substr(0, end_b);
    const bool last = end_a == std::string_view::npos || end_b == std::string_view::npos;
    if (line_a != line_b || last) {
      const auto shown = [](std::string_view line) {
        return std::string(line.empty() ? "nothing more" : line);
      };
      return {shown(line_a), shown(line_b)};
    }
    a.remove_prefix(end_a + 1);
    b.remove_prefix(end_b + 1);
  }
}

// Which tensors are not rank 0's everywhere: a bit for each.
std::vector<std::int64_t> differing(const comm::ProcessGroup& group, const NamedTensors& tensors) {
  std::vector<std::uint64_t> mine;
  for (const auto& [name, tensor] : tensors) {
    const Digest own = digest(tensor);
    mine.insert(mine.end(), own.begin(), own.end());
  }
  const auto size = static_cast<std::int64_t>(mine.size());
  const Tensor first = Tensor::empty({size}, DType::i64, Device{});
  std::memcpy(first.raw(), mine.data(), first.view().bytes());
  group.broadcast(first, 0, "digests of a model that is being wrapped").wait();
  const Tensor bits = Tensor::zeros({size / 128 + 1}, DType::i64, Device{});
  auto* const words = bits.data<std::int64_t>();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool same =
        std::memcmp(first.data<std::int64_t>() + 2 * i, &mine[2 * i], sizeof(Digest)) == 0;
    if (!same) words[i / 64] |= std::int64_t{1} << i % 64;
  }
  group.all_reduce(bits, comm::ReduceOp::bor, "what differs in a model that is being wrapped")
      .wait();
  return bits.to_vector<std::int64_t>();
}

}  // namespace

Digest digest(std::span<const std::byte> bytes) {
  std::uint64_t a = 1, b = 2;
  const auto mix = [&](std::uint64_t word) {
    a = (a ^ word) * 0x9E3779B97F4A7C15ull;
    a ^= a >> 29;
    b = (b ^ word) * 0xC2B2AE3D27D4EB4Full;
    b ^= b >> 31;
  };
  std::size_t at = 0;
  for (std::uint64_t word = 0; at + sizeof word <= bytes.size(); at += sizeof word) {
    std::memcpy(&word, bytes.data() + at, sizeof word);
    mix(word);
  }
  std::uint64_t rest = 0;
  if (at < bytes.size()) std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
  mix(rest);
  mix(bytes.size());
  return {a, b};
}

Digest digest(const Tensor& tensor) {
  const Tensor here = tensor.detach().to(Device{});
  return digest({static_cast<const std::byte*>(here.raw()), here.view().bytes()});
}

// Equal digests are their own largest, and so are their complements.
void check_same(const comm::ProcessGroup& group, const std::string& what, const std::string& text) {
  const auto [a, b] = digest(std::as_bytes(std::span(text)));
  const auto x = static_cast<std::int64_t>(a), y = static_cast<std::int64_t>(b);
  const Tensor most = Tensor::from(std::vector<std::int64_t>{x, ~x, y, ~y}, {4}, Device{});
  group.all_reduce(most, comm::ReduceOp::max, concat("a wrapper compares ", what)).wait();
  const auto found = most.to_vector<std::int64_t>();
  if (found[0] == ~found[1] && found[2] == ~found[3]) return;
  const auto all = group.all_gather_object(text);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto [theirs, other] = first_difference(all[0], all[r]);
    fail(concat("[ddp] ", what, " differ between ranks: rank 0 has '", theirs, "', rank ", r,
                " has '", other, "'; build the same model with the same options on every rank"));
  }
}

void make_equal(const comm::ProcessGroup& group, const NamedTensors& tensors) {
  if (group.world() == 1 || tensors.empty()) return;
  const auto bits = differing(group, tensors);
  std::vector<View> list;
  std::size_t bytes = 0;
  const auto send = [&] {
    const comm::Label label("a model that is being wrapped");
    if (list.size() == 1) group.broadcast(list[0], 0, label).wait();
    if (list.size() > 1) group.broadcast_coalesced(list, 0, label).wait();
    // Rank 0's are not written, but count as such: what others made from them is void there too.
    if (group.rank() == 0) {
      for (const View& view : list) view.storage->bump_version();
    }
    list.clear();
    bytes = 0;
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if ((bits[i / 64] >> i % 64 & 1) == 0) continue;
    const View view = tensors[i].second.view();
    if (bytes + view.bytes() > together) send();
    list.push_back(view);
    bytes += view.bytes();
  }
  send();
}

}  // namespace peal::nn
