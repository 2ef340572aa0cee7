// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mpi/mpi_rendezvous.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

namespace peal::comm {

MpiRendezvous::MpiRendezvous(MPI_Comm communicator, Patience patience)
    : communicator_(communicator), patience_(std::move(patience)) {
  const auto turn = threads_.turn();
  MPI_Comm_rank(communicator, &rank_);
  MPI_Comm_size(communicator, &world_);
}

std::vector<std::string> MpiRendezvous::exchange(const std::string& mine) {
  PEAL_CHECK(mine.size() <= most_store_bytes, "[store] rank ", rank_, ": a text of ", mine.size(),
             " bytes; expected at most ", most_store_bytes);
  threads_.check();
  const auto ranks = static_cast<std::size_t>(world_);
  struct Buffers {  // MPI has them for as long as it wants
    std::string mine, joined;
    int size;
    std::vector<int> sizes, offsets;
  };
  const auto buffers = std::make_shared<Buffers>(
      Buffers{mine, "", static_cast<int>(mine.size()), std::vector<int>(ranks), {}});
  auto& [own, joined, size, sizes, offsets] = *buffers;
  const std::string what = concat("rank ", rank_, ", exchanging texts");
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const auto turn = threads_.turn();
    check_mpi(MPI_Iallgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, communicator_, &request),
              "MPI_Iallgather");
  }
  finish(request, buffers, threads_, patience_, what);
  const auto total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const auto longest = std::max_element(sizes.begin(), sizes.end());
  PEAL_CHECK(total <= std::numeric_limits<int>::max(), "[store] rank ", rank_, ": the texts of ",
             world_, " ranks have ", total, " bytes together, the longest ", *longest, " of rank ",
             longest - sizes.begin(), "; expected at most ", std::numeric_limits<int>::max());
  offsets.resize(ranks);
  std::exclusive_scan(sizes.begin(), sizes.end(), offsets.begin(), 0);
  joined.resize(static_cast<std::size_t>(total));
  {
    const auto turn = threads_.turn();
    check_mpi(MPI_Iallgatherv(own.data(), size, MPI_CHAR, joined.data(), sizes.data(),
                              offsets.data(), MPI_CHAR, communicator_, &request),
              "MPI_Iallgatherv");
  }
  finish(request, buffers, threads_, patience_, what);
  std::vector<std::string> parts;
  for (std::size_t r = 0; r < ranks; ++r) {
    parts.push_back(
        joined.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(sizes[r])));
  }
  return parts;
}

}  // namespace peal::comm
