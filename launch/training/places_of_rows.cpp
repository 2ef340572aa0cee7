// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/places_of_rows.h>

namespace peal::launch {

std::vector<std::int64_t> places_of_rows(const data::DataLoader& loader, const data::Batch& batch,
                                         std::int64_t before) {
  std::vector<std::int64_t> of_samples;
  if (loader.plan()) {
    for (std::int64_t k = 0; k < batch.size(); ++k) of_samples.push_back(before + k);
  } else {
    of_samples = loader.places();
  }
  PEAL_CHECK(std::ssize(of_samples) == batch.size(), "[launch] a batch of ", batch.size(),
             " samples has ", of_samples.size(), " places");
  for (const auto& [name, tensor] : batch.more) {
    if (name != "order") continue;
    std::vector<std::int64_t> of_rows;
    for (const std::int64_t sample : tensor.to(Device{}).to_vector<std::int64_t>()) {
      of_rows.push_back(of_samples.at(static_cast<std::size_t>(sample)));
    }
    return of_rows;
  }
  return of_samples;
}

}  // namespace peal::launch
