// SPDX-License-Identifier: Apache-2.0
// Who sees which sample: the shards of an epoch as plain values, in the forms that training
// programs know, and an epoch that begins on three ranks and ends on four. Nothing is launched and
// nothing is sent: every rank can work out its part by itself. docs/book/09-sharded-data.md
// explains it.
//
// Run it:   build/release/examples/07_sharded_data
#include <peal/data/data.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

using namespace peal;
using Samples = std::vector<std::int64_t>;

namespace {

std::string text(const Samples& samples) {
  std::string line;
  for (const std::int64_t sample : samples)
    line += (line.empty() ? "" : " ") + std::to_string(sample);
  return line.empty() ? "-" : line;
}

std::string text(const data::Batches& batches) {
  std::string line;
  for (const Samples& batch : batches) line += (line.empty() ? "" : " | ") + text(batch);
  return line;
}

// A line a rank.
template <class F>
void show(const char* title, int world, F shard) {
  std::printf("%s\n", title);
  for (int rank = 0; rank < world; ++rank) {
    std::printf("  rank %d: %s\n", rank, text(shard(rank)).c_str());
  }
}

}  // namespace

int main() {
  const std::int64_t size = 10;
  Samples order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});

  show("padded", 3, [&](int rank) { return data::shard(size, 3, rank, {.shuffle = false}); });
  show("drop_last", 3,
       [&](int rank) { return data::shard(size, 3, rank, {.shuffle = false, .drop_last = true}); });
  show("exact", 3,
       [&](int rank) { return data::shard(size, 3, rank, {.shuffle = false, .exact = true}); });

  const data::Batches whole = data::in_batches(order, 2);
  show("whole batches of 2 in turn", 3, [&](int rank) {
    return data::batch_shard(whole, 2, {rank, 3});
  });
  show("contiguous parts", 3, [&](int rank) {
    return data::contiguous_batches(order, 2, {rank, 3});
  });

  // Shuffled, an epoch of three ranks that stops after two batches of one sample each.
  data::ShardOptions options{.seed = 7, .epoch = 1, .exact = true};
  show("epoch 1, shuffled", 3, [&](int rank) { return data::shard(size, 3, rank, options); });
  Samples seen;
  std::int64_t consumed = 0;
  show("its first two samples a rank", 3, [&](int rank) {
    data::DistributedSampler sampler(size, 3, rank, options);
    Samples mine = sampler.indices();
    consumed = sampler.consumed_after(2);
    mine.resize(2);
    seen.insert(seen.end(), mine.begin(), mine.end());
    return mine;
  });
  options.consumed = consumed;
  std::printf("consumed: %lld\n", static_cast<long long>(consumed));
  show("the rest, on four ranks", 4, [&](int rank) {
    Samples mine = data::shard(size, 4, rank, options);
    seen.insert(seen.end(), mine.begin(), mine.end());
    return mine;
  });
  std::sort(seen.begin(), seen.end());
  std::printf("all that was seen: %s\n", text(seen).c_str());
  return 0;
}
