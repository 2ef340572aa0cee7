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
  for (;;) {
    const auto end_a = a.find('\n'), end_b = b.find('\n');
    const auto line_a = a.substr(0, end_a), line_b = b.substr(0, end_b);
    if (line_a != line_b || end_a == a.npos || end_b == b.npos) return {line_a, line_b};
    a.remove_prefix(end_a + 1);
    b.remove_prefix(end_b + 1);
  }
}

}  // namespace

std::array<std::uint64_t, 2> digest(std::string_view text) {
  std::array<std::uint64_t, 2> hash = {0x243F6A8885A308D3ull, 0x13198A2E03707344ull};
  const auto take = [&](std::uint64_t word) {
    for (std::uint64_t& each : hash) mix(each, word);
  };
  take(text.size());
  for (std::size_t at = 0; at < text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
    take(word);
  }
  return hash;
}

void agree(const ProcessGroup& group, std::string_view what, const std::string& mine,
           std::string_view advice) {
  const auto own = digest(mine);
  const Tensor all = Tensor::zeros({group.world(), 2}, DType::i64, Device{});
  std::memcpy(all.data<std::int64_t>() + 2 * group.rank(), own.data(), sizeof own);
  group.all_gather(all, all.view().part(2 * group.rank(), 2)).wait();
  const auto said = all.to_vector<std::int64_t>();
  bool same = true;
  for (std::size_t i = 2; i < said.size(); ++i) same = same && said[i] == said[i % 2];
  if (same) return;
  const auto texts = group.all_gather_object(mine);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const auto [first, other] = first_difference(texts[0], texts[r]);
    fail(concat(what, " is '", first, "' on rank 0 and '", other, "' on rank ", r, ": ", advice));
  }
}

}  // namespace peal::comm
