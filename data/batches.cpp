// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/batches.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace peal::data {

std::int64_t count_batches(std::int64_t samples, std::int64_t batch_size, bool drop_last) {
  PEAL_CHECK(batch_size >= 1, "[data] batches: expected a batch_size of at least 1, got ",
             batch_size);
  return samples / batch_size + (!drop_last && samples % batch_size != 0 ? 1 : 0);
}

Batches in_batches(std::span<const std::int64_t> samples, std::int64_t batch_size, bool drop_last) {
  Batches batches(
      static_cast<std::size_t>(count_batches(std::ssize(samples), batch_size, drop_last)));
  for (std::size_t k = 0; k < batches.size(); ++k) {
    const std::size_t at = k * static_cast<std::size_t>(batch_size);
    const auto part =
        samples.subspan(at, std::min(static_cast<std::size_t>(batch_size), samples.size() - at));
    batches[k].assign(part.begin(), part.end());
  }
  return batches;
}

namespace {

void check_place(const char* who, std::int64_t batch_size, Place place) {
  PEAL_CHECK(place.world >= 1 && place.rank >= 0 && place.rank < place.world, "[data] ", who,
             ": expected a rank below its world, got rank ", place.rank, " of ", place.world);
  PEAL_CHECK(batch_size >= 1, "[data] ", who, ": expected a batch_size of at least 1, got ",
             batch_size);
}

void check_whole(const char* who, const Batches& whole, std::int64_t batch_size, Place place) {
  check_place(who, batch_size, place);
  for (std::size_t k = 0; k < whole.size(); ++k) {
    const std::int64_t size = std::ssize(whole[k]);
    const bool last = k + 1 == whole.size();
    PEAL_CHECK(size == batch_size || (last && size > 0 && size < batch_size), "[data] ", who,
               ": expected batches of ", batch_size, " samples, got ", size, " in batch ", k,
               " of ", whole.size());
  }
}

// The rank-th run of `each` of these samples, as far as there are any.
std::vector<std::int64_t> run_of(std::span<const std::int64_t> samples, std::size_t each,
                                 Place place) {
  const std::size_t begin = std::min(samples.size(), static_cast<std::size_t>(place.rank) * each);
  const auto run = samples.subspan(begin, std::min(each, samples.size() - begin));
  return {run.begin(), run.end()};
}

}  // namespace

Batches batch_shard(const Batches& whole, std::int64_t batch_size, Place place, Tail tail) {
  check_whole("batch_shard", whole, batch_size, place);
  const auto world = static_cast<std::size_t>(place.world);
  const auto rank = static_cast<std::size_t>(place.rank);
  Batches mine;
  if (whole.empty()) return mine;
  const auto each = static_cast<std::size_t>(batch_size);
  const std::size_t full = whole.back().size() == each ? whole.size() : whole.size() - 1;
  const std::size_t rounds = full / world;
  for (std::size_t round = 0; round < rounds; ++round) mine.push_back(whole[round * world + rank]);
  const std::size_t begin = rounds * world;  // of the round that is not everybody's
  if (begin == whole.size() || tail == Tail::drop) return mine;
  if (tail == Tail::uneven) {
    if (begin + rank < whole.size()) mine.push_back(whole[begin + rank]);
    return mine;
  }
  std::vector<std::int64_t> head, left;
  for (std::size_t k = 0; k < std::min(world, whole.size()); ++k) {
    head.insert(head.end(), whole[k].begin(), whole[k].end());
  }
  for (std::size_t k = begin; k < whole.size(); ++k) {
    left.insert(left.end(), whole[k].begin(), whole[k].end());
  }
  std::vector<std::int64_t> last;
  for (std::size_t at = rank * each; at < (rank + 1) * each; ++at) {
    last.push_back(at < left.size() ? left[at] : head[(at - left.size()) % head.size()]);
  }
  mine.push_back(std::move(last));
  return mine;
}

Batches split_batches(const Batches& whole, std::int64_t batch_size, Place place, Tail tail) {
  check_whole("split_batches", whole, batch_size, place);
  PEAL_CHECK(batch_size % place.world == 0, "[data] split_batches: batches of ", batch_size,
             " samples cannot be split evenly among ", place.world,
             " ranks; take a batch_size that ", place.world, " divides");
  const auto each = static_cast<std::size_t>(batch_size / place.world);
  Batches mine;
  for (const auto& batch : whole) {
    if (std::ssize(batch) == batch_size) mine.push_back(run_of(batch, each, place));
  }
  if (mine.size() == whole.size() || tail == Tail::drop) return mine;
  std::vector<std::int64_t> last = whole.back();
  const std::vector<std::int64_t>& first = whole.front();
  for (std::size_t i = 0; tail == Tail::fill && std::ssize(last) < batch_size; ++i) {
    last.push_back(first[i % first.size()]);
  }
  last = run_of(last, each, place);
  if (!last.empty()) mine.push_back(std::move(last));
  return mine;
}

Batches dispatched(const Batches& whole, std::int64_t batch_size, Place place, bool drop_last) {
  check_whole("dispatched", whole, batch_size, place);
  const auto world = static_cast<std::size_t>(place.world);
  std::vector<std::int64_t> all;
  for (const auto& batch : whole) all.insert(all.end(), batch.begin(), batch.end());
  Batches mine;
  const std::size_t round = world * static_cast<std::size_t>(batch_size);
  for (std::size_t at = 0; at < all.size(); at += round) {
    std::vector<std::int64_t> read(
        all.begin() + static_cast<std::ptrdiff_t>(at),
        all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), at + round)));
    if (read.size() < round && drop_last) break;
    for (std::size_t i = 0; read.size() % world != 0; ++i) read.push_back(all[i % all.size()]);
    mine.push_back(run_of(read, read.size() / world, place));
  }
  return mine;
}

Batches dispatch_order(const Batches& whole, std::int64_t batch_size, int world, bool drop_last) {
  std::vector<Batches> by_rank;
  for (int rank = 0; rank < std::max(world, 1); ++rank) {
    by_rank.push_back(dispatched(whole, batch_size, {rank, world}, drop_last));
  }
  Batches all;
  for (std::size_t k = 0; k < by_rank[0].size(); ++k) {
    for (Batches& of_rank : by_rank) all.push_back(std::move(of_rank[k]));
  }
  return all;
}

namespace {

// Of every rank, padding included.
std::int64_t contiguous_part(std::int64_t samples, Place place) {
  return (samples + place.world - 1) / place.world;
}

}  // namespace

Batches contiguous_batches(std::span<const std::int64_t> samples, std::int64_t batch_size,
                           Place place, bool drop_last) {
  check_place("contiguous_batches", batch_size, place);
  const std::int64_t part = contiguous_part(std::ssize(samples), place);
  std::vector<std::int64_t> mine;
  for (std::int64_t at = place.rank * part; at < (place.rank + 1) * part; ++at) {
    mine.push_back(samples[static_cast<std::size_t>(at) % samples.size()]);
  }
  return in_batches(mine, batch_size, drop_last);
}

std::int64_t unpadded(std::int64_t samples, std::int64_t batch_size, Place place,
                      std::int64_t batch) {
  check_place("unpadded", batch_size, place);
  const std::int64_t part = contiguous_part(samples, place), at = batch * batch_size;
  const std::int64_t size = std::clamp<std::int64_t>(part - at, 0, batch_size);
  return std::clamp<std::int64_t>(samples - (place.rank * part + at), 0, size);
}

Batches by_length(std::span<const std::int64_t> samples, std::span<const std::int64_t> lengths,
                  std::int64_t batch_size, std::int64_t window) {
  PEAL_CHECK(batch_size >= 1, "[data] by_length: expected a batch_size of at least 1, got ",
             batch_size);
  PEAL_CHECK(window >= 1, "[data] by_length: expected a window of at least 1 batch, got ", window);
  const auto length = [&](std::int64_t sample) {
    PEAL_CHECK(sample >= 0 && sample < std::ssize(lengths), "[data] by_length: sample ", sample,
               " has no length, there are ", lengths.size());
    return lengths[static_cast<std::size_t>(sample)];
  };
  std::vector<std::int64_t> sorted(samples.begin(), samples.end());
  for (const std::int64_t sample : sorted) length(sample);  // each has one
  const std::int64_t step = batch_size * window;
  for (std::int64_t at = 0; at < std::ssize(sorted); at += step) {
    const std::int64_t end = std::min(at + step, std::ssize(sorted));
    std::stable_sort(sorted.begin() + at, sorted.begin() + end,
                     [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
  }
  return in_batches(sorted, batch_size);
}

}  // namespace peal::data
