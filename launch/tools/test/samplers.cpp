// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/loader.h>
#include <peal/data/sampler.h>
#include <peal/data/tensor_dataset.h>
#include <peal/launch/tools/test/checks.h>

#include <algorithm>
#include <memory>

namespace peal::launch {
namespace {

using Numbers = std::vector<std::int64_t>;

// Of all ranks, each once.
void check_partition(const comm::ProcessGroup& group, const Numbers& mine, std::int64_t size,
                     const std::string& whose) {
  const std::string bytes(reinterpret_cast<const char*>(mine.data()),
                          mine.size() * sizeof(std::int64_t));
  std::vector<int> seen(static_cast<std::size_t>(size));
  for (const std::string& theirs : group.all_gather_object(bytes)) {
    const std::size_t count = theirs.size() / sizeof(std::int64_t);
    for (std::size_t k = 0; k < count; ++k) {
      std::int64_t sample = 0;
      theirs.copy(reinterpret_cast<char*>(&sample), sizeof sample, k * sizeof sample);
      PEAL_CHECK(sample >= 0 && sample < size, whose, ": there is no sample ", sample, " of ",
                 size);
      ++seen[static_cast<std::size_t>(sample)];
    }
  }
  for (std::int64_t sample = 0; sample < size; ++sample) {
    const int times = seen[static_cast<std::size_t>(sample)];
    PEAL_CHECK(times == 1, whose, " of ", size, " samples over ", group.world(), " ranks: sample ",
               sample, " came ", times, " times, expected once");
  }
}

Numbers loaded(std::int64_t size, Place place) {
  Tensor x = Tensor::zeros({size, 1});
  for (std::int64_t i = 0; i < size; ++i) x.data<float>()[i] = static_cast<float>(i);
  data::DataLoader loader(std::make_shared<data::TensorDataset>(x),
                          {.batch_size = 4, .shuffle = true, .shard = place, .exact = true});
  Numbers got;
  while (const auto batch = loader.next()) {
    for (const float value : batch->x.to_vector<float>()) {
      got.push_back(static_cast<std::int64_t>(value));
    }
  }
  return got;
}

}  // namespace

std::string check_samplers(Job& job) {
  const comm::ProcessGroup& group = job.group();
  int partitions = 0;
  for (const std::int64_t size : {1, 2, 7, 50, 97, 512}) {
    for (const bool shuffle : {false, true}) {
      const Numbers mine = data::shard(size, job.world(), job.rank(),
                                       {.shuffle = shuffle, .seed = 42, .exact = true});
      check_partition(group, mine, size, "shards");
      ++partitions;
    }
    check_partition(group, loaded(size, job.place()), size, "batches of loaders");
    ++partitions;
  }
  return concat(partitions, " partitions");
}

}  // namespace peal::launch
