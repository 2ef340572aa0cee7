// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/deal.h>

#include <algorithm>
#include <cstddef>

namespace peal::data {
namespace {

void check_deal(const Deal& how) {
  const auto [rank, world] = how.place;
  PEAL_CHECK(how.way != Way::samples, "[data] deal: single samples are dealt by shard()");
  PEAL_CHECK(world >= 1 && rank >= 0 && rank < world,
             "[data] deal: expected a rank below its world, got rank ", rank, " of ", world);
  PEAL_CHECK(how.batch_size >= 1, "[data] deal: expected a batch_size of at least 1, got ",
             how.batch_size);
  PEAL_CHECK(how.way != Way::split || how.batch_size % world == 0,
             "[data] split_batches: batches of ", how.batch_size,
             " samples cannot be split evenly among ", world, " ranks; take a batch_size that ",
             world, " divides");
}

// How many samples all ranks together take at a time; of a rank, each.
std::int64_t round_of(const Deal& how) {
  return how.way == Way::split ? how.batch_size : how.batch_size * how.place.world;
}

std::int64_t ceil_of(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

// The rank-th run of `each` from `begin`; cut at the end of the order where it is not filled up.
Run run_at(std::int64_t begin, std::int64_t each, const Deal& how, std::int64_t samples) {
  const Run run{begin + how.place.rank * each, begin + (how.place.rank + 1) * each};
  if (how.tail != Tail::uneven) return run;
  return {std::min(run.begin, samples), std::min(run.end, samples)};
}

// Of a rank.
std::int64_t contiguous_part(std::int64_t samples, std::int64_t batch_size, int world, bool drop) {
  return drop ? samples / (batch_size * world) * batch_size : ceil_of(samples, world);
}

Planned<Run> contiguous(std::int64_t samples, const Deal& how) {
  const std::int64_t b = how.batch_size;
  const Run mine =
      run_at(0, contiguous_part(samples, b, how.place.world, how.tail == Tail::drop), how, samples);
  return {ceil_of(mine.end - mine.begin, b), [=](std::int64_t k) {
            return Run{mine.begin + k * b, std::min(mine.begin + (k + 1) * b, mine.end)};
          }};
}

}  // namespace

Planned<Run> deal(std::int64_t samples, const Deal& how) {
  check_deal(how);
  if (how.way == Way::contiguous) return contiguous(samples, how);
  const std::int64_t round = round_of(how), full = samples / round, over = samples % round;
  const std::int64_t each = round / how.place.world;
  // Of the round that the samples do not fill.
  const std::int64_t of_last = how.way == Way::dispatched ? ceil_of(over, how.place.world) : each;
  const Run last = run_at(full * round, of_last, how, samples);
  const bool has_last = over > 0 && how.tail != Tail::drop && last.begin < last.end;
  return {full + has_last, [=](std::int64_t k) {
            if (k == full) return last;
            const std::int64_t begin = k * round + how.place.rank * each;
            return Run{begin, begin + each};
          }};
}

std::int64_t padded_from(std::int64_t whole, const Deal& how) {
  const bool first_round = how.way == Way::batches || how.way == Way::split;
  return first_round ? std::min(whole, round_of(how)) : whole;
}

Dealt dealt(const Deal& how, std::int64_t batches) {
  return {how.way, how.batch_size, how.place.world, batches,
          how.way == Way::contiguous && how.tail == Tail::drop};
}

std::vector<Run> left(std::int64_t samples, std::span<const Dealt> dealt) {
  std::vector<Run> rest;
  if (samples > 0) rest.push_back({0, samples});
  for (const auto& [way, batch_size, world, batches, drop] : dealt) {
    std::int64_t size = 0;
    for (const Run& run : rest) size += run.end - run.begin;
    // What was taken, as places of what there was.
    std::vector<Run> taken;
    const Deal how{way, batch_size, {0, world}, Tail::uneven};
    check_deal(how);
    PEAL_CHECK(batches >= 0, "[data] deal: expected at least 0 batches, got ", batches);
    if (way == Way::contiguous) {
      const std::int64_t part = contiguous_part(size, batch_size, world, drop);
      for (int rank = 0; rank < world; ++rank) {
        const std::int64_t begin = rank * part;
        const Run run{begin, std::min({begin + batches * batch_size, begin + part, size})};
        if (run.begin < run.end) taken.push_back(run);
      }
    } else {
      taken.push_back({0, std::min(size, batches * round_of(how))});
    }
    std::vector<Run> after;
    std::int64_t before = 0;  // places in earlier runs
    auto next = taken.begin();
    for (const Run& run : rest) {
      const std::int64_t length = run.end - run.begin;
      std::int64_t at = 0;  // in this run
      while (at < length) {
        while (next != taken.end() && next->end <= before + at) ++next;
        const bool any = next != taken.end();
        const std::int64_t begin = any ? std::max<std::int64_t>(next->begin - before, at) : length;
        if (at < std::min(begin, length)) {
          after.push_back({run.begin + at, run.begin + std::min(begin, length)});
        }
        if (!any || begin >= length) break;
        at = std::min(next->end - before, length);
      }
      before += length;
    }
    rest = std::move(after);
  }
  return rest;
}

Order places_of(std::vector<Run> runs) {
  std::vector<std::int64_t> ends;  // how many places there are up to the end of each
  std::int64_t count = 0;
  for (const Run& run : runs) ends.push_back(count += run.end - run.begin);
  return {count, [runs = std::move(runs), ends = std::move(ends)](std::int64_t k) {
            const auto i = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), k) -
                                                    ends.begin());
            return runs[i].end - (ends[i] - k);
          }};
}

}  // namespace peal::data
