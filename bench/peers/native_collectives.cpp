// SPDX-License-Identifier: Apache-2.0
// MPI's collectives without peal, by whichever MPI this is compiled with (collectives.py does
// that), timed as collective_turns.h says. Buffers begin at a huge page's start, and ask for huge
// pages.
//
//   mpirun -n N native_collectives OPERATION BOARD MOST_BYTES     BOARD: a new file's path
#include <peal/bench/peers/collective_turns.h>

#include <mpi.h>

#include <cstdlib>

namespace {

float* buffer(std::size_t bytes) {
  constexpr std::size_t huge = std::size_t{2} << 20;
  const std::size_t room = (bytes + huge - 1) / huge * huge;
  auto* const data = static_cast<float*>(std::aligned_alloc(huge, room));
  if (data == nullptr) throw std::runtime_error("no memory");
  madvise(data, room, MADV_HUGEPAGE);
  std::fill_n(data, room / sizeof(float), 0.0F);
  return data;
}

}  // namespace

int main(int argc, char** argv) {
  using peal::bench::Operation;
  MPI_Init(&argc, &argv);
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const char* expected = std::getenv("PEERS_RANKS");
  if (argc != 4 || (expected != nullptr && std::atoi(expected) != world)) {
    std::fprintf(
        stderr,
        "native_collectives OPERATION BOARD MOST_BYTES, started on %s ranks; got %d words, "
        "%d ranks\n",
        expected == nullptr ? "all" : expected, argc - 1, world);
    return 1;
  }
  const Operation what = peal::bench::operation_named(argv[1]);
  const auto most = static_cast<std::size_t>(std::atoll(argv[3]));
  float* const in = buffer(most);
  float* const out = peal::bench::in_place(what) ? in : buffer(most);
  const auto call = [&](std::size_t elements, std::size_t share) {
    const int count = static_cast<int>(elements), block = static_cast<int>(share);
    switch (what) {
      case Operation::all_reduce:
        MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Operation::all_gather:
        MPI_Allgather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Operation::reduce_scatter:
        MPI_Reduce_scatter_block(in, out, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Operation::broadcast:
        MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case Operation::reduce:
        MPI_Reduce(rank == 0 ? MPI_IN_PLACE : in, in, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        break;
      case Operation::alltoall:
        MPI_Alltoall(in, block, MPI_FLOAT, out, block, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Operation::update:  // nothing of MPI's
        std::exit(1);
    }
  };
  peal::bench::Turns(argv[2], what, rank, world, in, out, most).take(call);
  MPI_Finalize();
}
