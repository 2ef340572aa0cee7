// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/out_of_memory.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

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

// Before what a rank has found wrong, in the place of its text.
constexpr char fault = '\1';
constexpr std::size_t most_faults = 4;

// "rank 1: it has none; rank 3: it has two", or nothing.
std::string faults_in(const ProcessGroup& group, const std::vector<std::string>& texts) {
  std::string all;
  std::size_t count = 0;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (!texts[r].starts_with(fault) || ++count > most_faults) continue;
    all += concat(all.empty() ? "" : "; ", "rank ", group.global_rank(static_cast<int>(r)), ": ",
                  texts[r].substr(1));
  }
  if (count > most_faults) all += concat("; and ", count - most_faults, " ranks more");
  return all;
}

bool is_out_of_memory(const std::string& text) {
  return text.find(out_of_memory_words) != std::string::npos;
}

// An Error; where nothing else is wrong on any rank, OutOfMemory.
[[noreturn]] void fail_by(const std::vector<std::string>& texts, const std::string& words) {
  const bool only_memory = std::ranges::all_of(texts, [](const std::string& text) {
    return !text.starts_with(fault) || is_out_of_memory(text);
  });
  if (only_memory) throw OutOfMemory(words);
  fail(words);
}

// Whoever has read what all said may end with its error at once: not while another still reads,
// which would take that end for what went wrong.
void wait_for_readers(const ProcessGroup& group) {
  try {
    group.barrier("having compared").wait();
  } catch (const Error&) {
  }
}

}  // namespace

// Eight words at a time go through chains of their own, so that a processor has enough to do at
// once. In the end all chains meet in both halves, in another order.
std::array<std::uint64_t, 2> digest(std::string_view bytes) {
  constexpr std::size_t lanes = 8;
  std::uint64_t whole = 0;
  std::uint64_t chains[lanes] = {1, 2, 3, 4, 5, 6, 7, 8}, words[lanes];
  while (bytes.size() >= sizeof words) {
    std::memcpy(words, bytes.data(), sizeof words);
    for (std::size_t i = 0; i < lanes; ++i) mix(chains[i], words[i]);
    whole += sizeof words;
    bytes.remove_prefix(sizeof words);
  }
  std::memset(words, 0, sizeof words);
  if (!bytes.empty()) std::memcpy(words, bytes.data(), bytes.size());
  for (std::size_t i = 0; i < lanes; ++i) mix(chains[i], words[i]);
  std::uint64_t first = whole + bytes.size(), second = ~first;
  for (std::size_t i = 0; i < lanes; ++i) {
    mix(first, chains[i]);
    mix(second, chains[lanes - 1 - i]);
  }
  return {first, second};
}

std::string agree(const ProcessGroup& group, std::string_view what, const std::string& mine,
                  std::string_view advice, const std::string& told, std::uint64_t* word) {
  struct Said {
    std::array<std::uint64_t, 2> mine, told;  // digests
    std::uint64_t told_bytes, word;
  };
  constexpr std::int64_t words = sizeof(Said) / sizeof(std::int64_t);
  const Tensor all = Tensor::zeros({group.world(), words}, DType::i64, Device{});
  std::vector<Said> said(static_cast<std::size_t>(group.world()));
  Said& own = said[static_cast<std::size_t>(group.rank())];
  own = {digest(mine), digest(told), told.size(), word != nullptr ? *word : 0};
  std::memcpy(all.data<std::int64_t>() + words * group.rank(), &own, sizeof own);
  const std::string label = concat("comparing: ", what);
  group.all_gather(all, all.view().part(words * group.rank(), words), label).wait();
  std::memcpy(said.data(), all.raw(), said.size() * sizeof(Said));
  const Said& first = said[0];
  if (std::ranges::all_of(said, [&](const Said& each) { return each.mine == first.mine; })) {
    if (word != nullptr) *word = first.word;
    if (first.told_bytes == 0) return {};
    const Tensor bytes =
        Tensor::zeros({static_cast<std::int64_t>(first.told_bytes)}, DType::u8, Device{});
    if (group.rank() == 0) std::memcpy(bytes.raw(), told.data(), told.size());
    group.broadcast(bytes, 0, label).wait();
    std::string heard(reinterpret_cast<const char*>(bytes.raw()), first.told_bytes);
    PEAL_CHECK(digest(heard) == first.told, what, ": rank ", group.global_rank(group.rank()),
               " has not heard what rank ", group.global_rank(0), " says");
    return heard;
  }
  const auto texts = group.all_gather_object(mine);
  wait_for_readers(group);
  const std::string faults = faults_in(group, texts);
  if (!faults.empty()) fail_by(texts, concat(what, ": ", faults));
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const auto [theirs, other] = first_difference(texts[0], texts[r]);
    fail(concat(what, " is '", theirs, "' on rank ", group.global_rank(0), " and '", other,
                "' on rank ", group.global_rank(static_cast<int>(r)), ": ", advice));
  }
  return {};
}

void agree_unless(const ProcessGroup& group, std::string_view what, const std::string& mine,
                  const std::string& wrong, std::string_view advice) {
  agree(group, what, wrong.empty() ? mine : fault + wrong, advice);
  if (wrong.empty()) return;
  wait_for_readers(group);
  fail_by({fault + wrong}, concat(what, group.world() == 1 ? ": " : ": on all ranks: ", wrong));
}

}  // namespace peal::comm
