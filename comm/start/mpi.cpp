// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/mpi.h>
#include <peal/comm/start/neighbours.h>
#include <peal/comm/store/part_of_rendezvous.h>
#include <peal/comm/transport/mpi/mpi.h>
#include <peal/comm/transport/mpi/mpi_rendezvous.h>

#include <memory>
#include <utility>

namespace peal::comm {

void leave_mpi() {
  if (const auto engine = engine_of_this_process()) engine->end_beside();
  MpiThreads::end();
}

ProcessGroup mpi_group(MPI_Comm communicator, const ProcessGroup::Options& options,
                       std::size_t piece) {
  PEAL_CHECK(piece >= 1 && piece <= MpiTransport::largest_piece, "mpi_group: a piece of ", piece,
             " bytes; expected 1 to ", MpiTransport::largest_piece);
  int initialized = 0;
  MPI_Initialized(&initialized);
  PEAL_CHECK(initialized, "mpi_group: call MPI_Init first, or use peal::launch");
  ranks_are_joined();
  const Patience patience{.deadline = options.deadline};
  auto transport = MpiTransport::duplicate(communicator, piece, patience);
  const int rank = transport->rank(), world = transport->world();

  MpiRendezvous everyone(transport->communicator(), patience);
  Neighbours met = meet(everyone);
  std::shared_ptr<Board> board;
  PartOfRendezvous neighbours(everyone, met.here);
  try {
    board = world > 1 ? Board::shared(neighbours, world, met.here) : Board::in_memory(world);
  } catch (const NoSharedMemory& error) {  // the job can run without: peers' deaths are still seen
    log_warning(error.what(), "; going on, but ranks tell each other of errors by messages alone");
    board = Board::in_memory(world);
    met.here = {rank};
  }

  // Of groups over parts of the job each would have a rank 0 and its file.
  int job = 0;
  {
    const MpiThreads threads;
    const auto turn = threads.turn();
    MPI_Comm_size(MPI_COMM_WORLD, &job);
  }
  ProcessGroup::Options kept = options;
  if (world != job) kept.trace.clear();

  auto control =
      std::make_unique<Control>(std::move(board), rank, std::move(met.here), met.processes);
  return make_group(std::move(transport), std::move(control), engine_of_this_process(met.crowded),
                    kept, std::move(met.nodes));
}

}  // namespace peal::comm
