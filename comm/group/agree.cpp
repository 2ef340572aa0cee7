// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/agree.h>
#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace peal::comm {
namespace {

// The first lines that differ; of texts that are one line, those.
std::pair<std::string_view, std::string_view> first_difference(std::string_view a,
                                                               std::string_view b) {
  constexpr std::string_view ended = "nothing more";
  const auto line_of = [](std::string_view text) { return text.substr(0, text.find('\n')); };
  for (;;) {
    const auto line_a = line_of(a), line_b = line_of(b);
    if (line_a != line_b) return {line_a, line_b};
    a.remove_prefix(std::min(a.size(), line_a.size() + 1));
    b.remove_prefix(std::min(b.size(), line_b.size() + 1));
    if (a.empty() && b.empty()) return {line_a, line_b};
    if (a.empty() || b.empty())
      return {a.empty() ? ended : line_of(a), b.empty() ? ended : line_of(b)};
  }
}

}  // namespace

// Even and odd words go through chains of their own, so that a processor has enough to do at once.
std::array<std::uint64_t, 2> digest(std::string_view bytes) {
  constexpr std::size_t size = sizeof(std::uint64_t);
  std::uint64_t even[2] = {1, 2}, odd[2] = {3, 4};
  const auto word = [&](std::size_t at) {
    std::uint64_t bits = 0;
    if (at < bytes.size()) {
      std::memcpy(&bits, bytes.data() + at, std::min(size, bytes.size() - at));
    }
    return bits;
  };
  for (std::size_t at = 0; at < bytes.size(); at += 2 * size) {
    const std::uint64_t first = word(at), second = word(at + size);
    for (const int half : {0, 1}) {
      mix(even[half], first);
      mix(odd[half], second);
    }
  }
  for (const int half : {0, 1}) {
    mix(even[half], odd[half]);
    mix(even[half], bytes.size());
  }
  return {even[0], even[1]};
}

void agree(const ProcessGroup& group, std::string_view what, const std::string& mine,
           std::string_view advice) {
  const auto own = digest(mine);
  const Tensor all = Tensor::zeros({group.world(), 2}, DType::i64, Device{});
  std::memcpy(all.data<std::int64_t>() + 2 * group.rank(), own.data(), sizeof own);
  const std::string label = concat("comparing: ", what);
  group.all_gather(all, all.view().part(2 * group.rank(), 2), label).wait();
  const auto said = all.to_vector<std::int64_t>();
  bool same = true;
  for (std::size_t i = 2; i < said.size(); ++i) same = same && said[i] == said[i % 2];
  if (same) return;
  const auto texts = group.all_gather_object(mine);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const auto [first, other] = first_difference(texts[0], texts[r]);
    fail(concat(what, " is '", first, "' on rank ", group.global_rank(0), " and '", other,
                "' on rank ", group.global_rank(static_cast<int>(r)), ": ", advice));
  }
}

}  // namespace peal::comm
