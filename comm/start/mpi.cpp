// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/comm/start/mpi.h>
#include <peal/comm/transport/mpi/mpi_store.h>

#include <unistd.h>

#include <mutex>
#include <sstream>

namespace peal::comm {

namespace {

// All groups of a process advance together, or two ranks that wait for two groups in different
// orders would wait for ever.
std::shared_ptr<Engine> engine_of_this_process(bool crowded) {
  static std::mutex mutex;
  static std::weak_ptr<Engine> kept;
  std::lock_guard lock(mutex);
  auto engine = kept.lock();
  if (!engine) kept = engine = std::make_shared<Engine>(crowded);
  return engine;
}

}  // namespace

std::shared_ptr<ProcessGroup> mpi_group(MPI_Comm communicator, const ProcessGroup::Options& options,
                                        std::size_t piece) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  PEAL_CHECK(initialized, "mpi_group: call MPI_Init first, or use peal::launch");
  auto transport = MpiTransport::duplicate(communicator, piece);
  const int rank = transport->rank(), world = transport->world();

  MPI_Comm node;
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MpiStore store(node);
  std::vector<int> here;
  std::vector<Peer> processes;
  std::shared_ptr<Board> board;
  std::string problem;
  for (const std::string& entry :
       store.exchange(concat(rank, " ", getpid(), " ", pid_namespace()))) {
    std::istringstream words(entry);
    Peer peer{};
    std::string space;
    words >> peer.rank >> peer.pid >> space;
    here.push_back(peer.rank);
    if (space == pid_namespace()) processes.push_back(peer);
  }
  try {
    board = here.size() > 1 ? Board::shared(store, world) : Board::in_memory(world);
  } catch (const Error& error) {  // the job can run without: peers' deaths are still seen
    log_warning(error.what(), "; going on, but a rank's error will not reach the others");
    board = Board::in_memory(world);
  }
  MPI_Comm_free(&node);

  // Of groups over parts of the job each would have a rank 0 and its file.
  int job = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &job);
  ProcessGroup::Options kept = options;
  if (world != job) kept.trace.clear();

  const bool crowded = static_cast<long>(here.size()) > sysconf(_SC_NPROCESSORS_ONLN);
  auto control = std::make_unique<Control>(std::move(board), rank, std::move(here), processes);
  return std::make_shared<ProcessGroup>(std::move(transport), std::move(control),
                                        engine_of_this_process(crowded), kept);
}

}  // namespace peal::comm
