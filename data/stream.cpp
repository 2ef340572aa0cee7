// SPDX-License-Identifier: Apache-2.0
#include <peal/data/stream.h>

#include <algorithm>

namespace peal::data {

std::vector<std::int64_t> reader_parts(std::int64_t parts, Place place, int worker, int workers) {
  PEAL_CHECK(place.world >= 1 && place.rank >= 0 && place.rank < place.world,
             "[data] reader_parts: expected a rank below its world, got rank ", place.rank, " of ",
             place.world);
  const std::int64_t each = std::max(workers, 1);
  PEAL_CHECK(worker >= 0 && worker < each, "[data] reader_parts: expected a worker from 0 to ",
             each - 1, ", got ", worker);
  std::vector<std::int64_t> mine;
  for (std::int64_t part = place.rank + worker * std::int64_t{place.world}; part < parts;
       part += place.world * each) {
    mine.push_back(part);
  }
  return mine;
}

}  // namespace peal::data
