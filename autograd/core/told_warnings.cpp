// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cores.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/told_warnings.h>

namespace peal {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

bool ToldWarnings::say(std::uint64_t words, int rank) {
  words += words == 0;
  for (std::size_t i = 0; i < places; ++i) {
    Place& place = place_[(words + i) % places];
    std::uint64_t found = 0;
    if (!place.words.compare_exchange_strong(found, words) && found != words) continue;
    if (rank >= 0) {
      // Of more ranks than there are bits for none is named.
      if (rank >= most_ranks)
        place.beyond.store(1);
      else
        place.ranks[rank / bits].fetch_or(std::uint64_t{1} << rank % bits);
    }
    return place.times.fetch_add(1) == 0;
  }
  return true;
}

ToldWarnings::Times ToldWarnings::times(std::uint64_t words) const {
  Times said;
  words += words == 0;
  for (std::size_t i = 0; i < places; ++i) {
    const Place& place = place_[(words + i) % places];
    const std::uint64_t found = place.words.load();
    if (found == 0) break;
    if (found != words) continue;
    said.times = place.times.load();
    for (int rank = 0; rank < most_ranks && place.beyond.load() == 0; ++rank) {
      if ((place.ranks[rank / bits].load() >> rank % bits & 1) != 0) said.ranks.push_back(rank);
    }
    break;
  }
  return said;
}

std::string in_brackets(const ToldWarnings::Times& said) {
  if (said.times < 2) return "";
  const char* const word = said.ranks.size() > 1 ? ": ranks " : ": rank ";
  return concat(" (x", said.times, said.ranks.empty() ? "" : concat(word, cpu_list(said.ranks)),
                ")");
}

std::string without_rank(std::string_view text, int rank) {
  std::string rest(text);
  const std::string own = concat("rank ", rank);
  for (auto at = rest.find(own); at != rest.npos; at = rest.find(own, at + 1)) {
    const auto end = at + own.size();
    if (end < rest.size() && rest[end] >= '0' && rest[end] <= '9') continue;  // rank 31, of rank 3
    return rest.erase(at + 5, own.size() - 5);
  }
  return rest;
}

}  // namespace peal
