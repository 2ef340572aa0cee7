// SPDX-License-Identifier: Apache-2.0
// A network that makes mistakes, by MPI's profiling interface: of what rank 1 sends, message number
// WRONG_SEND (counted from 0, among those of 1 KiB or more) has one bit turned over. Linked with a
// program of bench/perf.
#include <mpi.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <list>
#include <vector>

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  static const char* wanted = std::getenv("WRONG_SEND");
  static long number = 0;
  static std::list<std::vector<std::byte>> copies;  // until the end: somebody may still read them
  int rank = 0, size = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Type_size(type, &size);
  const auto bytes = static_cast<std::size_t>(count) * static_cast<std::size_t>(size);
  if (wanted != nullptr && rank == 1 && bytes >= 1024 && number++ == std::atol(wanted)) {
    copies.emplace_back(bytes);
    std::memcpy(copies.back().data(), data, bytes);
    copies.back()[0] ^= std::byte{64};
    data = copies.back().data();
  }
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
