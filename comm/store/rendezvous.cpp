// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/store/rendezvous.h>

#include <utility>

namespace peal::comm {

StoreRendezvous::StoreRendezvous(Store& store, int rank, int world, std::string name)
    : store_(store), rank_(rank), world_(world), name_(std::move(name)) {
  PEAL_CHECK(rank >= 0 && rank < world, "[store] rank ", rank, " of a world of ", world);
}

std::vector<std::string> StoreRendezvous::exchange(const std::string& mine) {
  PEAL_CHECK(mine.size() <= most_store_bytes, "[store] rank ", rank_, ": a text of ", mine.size(),
             " bytes; expected at most ", most_store_bytes);
  if (world_ == 1) return {mine};
  const std::string prefix = concat(name_, " ", store_.generation(name_));
  const std::string read = prefix + ", read by", done = prefix + ", over";
  std::vector<std::string> keys;
  for (int r = 0; r < world_; ++r) keys.push_back(concat(prefix, ", rank ", r));
  store_.set(keys[static_cast<std::size_t>(rank_)], mine);
  auto texts = store_.multi_get(keys);
  if (store_.add(read, 1) == world_) {  // the last
    keys.push_back(read);
    store_.remove(keys);
    store_.set(done, "");
  }
  if (rank_ == 0) {
    store_.wait({done});
    store_.remove({done});
  }
  return texts;
}

}  // namespace peal::comm
