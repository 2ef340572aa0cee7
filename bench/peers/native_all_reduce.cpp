// SPDX-License-Identifier: Apache-2.0
// MPI_Allreduce without peal, by whichever MPI it is compiled with (all_reduce.py does that), timed
// as all_reduce_turns.h says. The buffer begins at a huge page's start, and asks for huge pages.
//
//   mpirun -n N native_all_reduce BOARD MOST_BYTES     BOARD: a new file's path
#include <peal/bench/peers/all_reduce_turns.h>

#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const char* expected = std::getenv("PEERS_RANKS");
  if (argc != 3 || (expected != nullptr && std::atoi(expected) != world)) {
    std::fprintf(
        stderr, "native_all_reduce BOARD MOST_BYTES, started on %s ranks; got %d words, %d ranks\n",
        expected == nullptr ? "all" : expected, argc - 1, world);
    return 1;
  }
  constexpr std::size_t huge = std::size_t{2} << 20;
  const auto most = static_cast<std::size_t>(std::atoll(argv[2]));
  const std::size_t room = (most + huge - 1) / huge * huge;
  auto* data = static_cast<float*>(std::aligned_alloc(huge, room));
  if (data == nullptr) return 1;
  madvise(data, room, MADV_HUGEPAGE);
  std::fill_n(data, room / sizeof(float), 0.0F);
  peal::bench::Turns(argv[1], rank, world, data, most).take([&](std::size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
  MPI_Finalize();
}
