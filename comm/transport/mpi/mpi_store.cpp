// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/transport/mpi/mpi_store.h>

namespace peal::comm {

MpiStore::MpiStore(MPI_Comm communicator) : communicator_(communicator) {
  MPI_Comm_rank(communicator, &rank_);
  MPI_Comm_size(communicator, &world_);
}

std::vector<std::string> MpiStore::exchange(const std::string& mine) {
  const auto ranks = static_cast<std::size_t>(world_);
  const int size = static_cast<int>(mine.size());
  std::vector<int> sizes(ranks), offsets(ranks);
  MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, communicator_);
  int total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = total;
    total += sizes[r];
  }
  std::string joined(static_cast<std::size_t>(total), 0);
  MPI_Allgatherv(mine.data(), size, MPI_CHAR, joined.data(), sizes.data(), offsets.data(), MPI_CHAR,
                 communicator_);
  std::vector<std::string> parts;
  for (std::size_t r = 0; r < ranks; ++r) {
    parts.push_back(
        joined.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(sizes[r])));
  }
  return parts;
}

}  // namespace peal::comm
