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

std::vector<std::int64_t> samples_of(const Batches& whole) {
  std::vector<std::int64_t> all;
  for (const auto& batch : whole) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

Batches dealt_whole(const Batches& whole, const Deal& how) {
  return dealt_batches(samples_of(whole), how).to_vector();
}

Tail tail_of(bool drop_last) { return drop_last ? Tail::drop : Tail::fill; }

}  // namespace

PlannedBatches planned_batches(Order samples, std::int64_t batch_size, bool drop_last) {
  const std::int64_t count = count_batches(samples.size(), batch_size, drop_last);
  return {count, [all = std::move(samples), batch_size](std::int64_t k) {
            const std::int64_t begin = k * batch_size,
                               end = std::min(begin + batch_size, all.size());
            std::vector<std::int64_t> batch;
            batch.reserve(static_cast<std::size_t>(end - begin));
            for (std::int64_t at = begin; at < end; ++at) batch.push_back(all[at]);
            return batch;
          }};
}

namespace {

// The batches of these runs of what is left of an order, which pads them.
PlannedBatches batches_of(Planned<Run> runs, const Order& order, const Order& rest,
                          std::int64_t padding) {
  const std::int64_t count = runs.size();
  return {count, [=, runs = std::move(runs)](std::int64_t k) {
            const Run run = runs[k];
            std::vector<std::int64_t> batch;
            batch.reserve(static_cast<std::size_t>(run.end - run.begin));
            for (std::int64_t at = run.begin; at < run.end; ++at) {
              const std::int64_t over = at - rest.size();
              batch.push_back(order[over < 0 ? rest[at] : over % padding]);
            }
            return batch;
          }};
}

}  // namespace

PlannedBatches dealt_batches(const Order& order, const Deal& how, std::span<const Dealt> before) {
  const Order rest = places_of(left(order.size(), before));
  return batches_of(deal(rest.size(), how), order, rest, padded_from(order.size(), how));
}

PlannedBatches dealt_to_all(const Order& order, Deal how, std::span<const Dealt> before) {
  const Order rest = places_of(left(order.size(), before));
  how.place.rank = 0;
  const int world = how.place.world;
  const std::int64_t each = deal(rest.size(), how).size();
  Planned<Run> runs(each * world, [=, size = rest.size()](std::int64_t k) {
    Deal one = how;
    one.place.rank = static_cast<int>(k % world);
    return deal(size, one)[k / world];
  });
  return batches_of(std::move(runs), order, rest, padded_from(order.size(), how));
}

std::vector<std::int64_t> dealt_places(std::int64_t samples, const Deal& how,
                                       std::span<const Dealt> before, std::int64_t k) {
  const Order rest = places_of(left(samples, before));
  const Run run = deal(rest.size(), how)[k];
  std::vector<std::int64_t> places;
  for (std::int64_t at = run.begin; at < run.end; ++at) {
    places.push_back(at < rest.size() ? rest[at] : -1);
  }
  return places;
}

Batches batch_shard(const Batches& whole, std::int64_t batch_size, Place place, Tail tail) {
  check_whole("batch_shard", whole, batch_size, place);
  return dealt_whole(whole, {Way::batches, batch_size, place, tail});
}

Batches split_batches(const Batches& whole, std::int64_t batch_size, Place place, Tail tail) {
  check_whole("split_batches", whole, batch_size, place);
  return dealt_whole(whole, {Way::split, batch_size, place, tail});
}

Batches dispatched(const Batches& whole, std::int64_t batch_size, Place place, bool drop_last) {
  check_whole("dispatched", whole, batch_size, place);
  return dealt_whole(whole, {Way::dispatched, batch_size, place, tail_of(drop_last)});
}

Batches dispatch_order(const Batches& whole, std::int64_t batch_size, int world, bool drop_last) {
  check_whole("dispatched", whole, batch_size, {0, world});
  return dealt_to_all(samples_of(whole),
                      {Way::dispatched, batch_size, {0, world}, tail_of(drop_last)})
      .to_vector();
}

Batches contiguous_batches(std::span<const std::int64_t> samples, std::int64_t batch_size,
                           Place place, bool drop_last) {
  check_place("contiguous_batches", batch_size, place);
  Batches batches = dealt_batches(std::vector<std::int64_t>(samples.begin(), samples.end()),
                                  {Way::contiguous, batch_size, place, Tail::fill})
                        .to_vector();
  if (drop_last) {
    std::erase_if(batches, [&](const auto& batch) { return std::ssize(batch) < batch_size; });
  }
  return batches;
}

std::int64_t unpadded(std::int64_t samples, std::int64_t batch_size, Place place,
                      std::int64_t batch) {
  check_place("unpadded", batch_size, place);
  const Planned<Run> real = deal(samples, {Way::contiguous, batch_size, place, Tail::uneven});
  return batch < real.size() ? real[batch].end - real[batch].begin : 0;
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
