// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cores.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/mpi.h>
#include <peal/comm/start/node.h>
#include <peal/comm/store/part_of_rendezvous.h>
#include <peal/comm/transport/mpi/mpi.h>
#include <peal/comm/transport/mpi/mpi_rendezvous.h>

#include <unistd.h>

#include <mutex>
#include <sstream>

namespace peal::comm {

namespace {

// All groups of a process advance together, or two ranks that wait for two groups in different
// orders would wait for ever.
std::mutex mutex;
std::weak_ptr<Engine> of_this_process;

std::shared_ptr<Engine> engine_of_this_process(bool crowded) {
  const std::lock_guard lock(mutex);
  auto engine = of_this_process.lock();
  if (!engine) of_this_process = engine = std::make_shared<Engine>(crowded);
  return engine;
}

}  // namespace

void leave_mpi() {
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard lock(mutex);
    engine = of_this_process.lock();
  }
  if (engine) engine->end_beside();
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
  const std::string node = node_identity();
  std::vector<int> here;
  std::vector<Peer> processes;
  std::vector<std::vector<int>> cpus;
  std::vector<std::string> nodes;
  for (const std::string& entry : everyone.exchange(
           concat(node, " ", getpid(), " ", pid_namespace(), " ", cpu_list(allowed_cpus())))) {
    std::istringstream words(entry);
    Peer peer{};
    std::string where, space, may_use;
    words >> where >> peer.pid >> space >> may_use;
    peer.rank = static_cast<int>(nodes.size());
    nodes.push_back(where);
    if (where != node) continue;
    here.push_back(peer.rank);
    cpus.push_back(parse_cpu_list(may_use));
    if (space == pid_namespace()) processes.push_back(peer);
  }
  std::shared_ptr<Board> board;
  PartOfRendezvous neighbours(everyone, here);
  try {
    board = world > 1 ? Board::shared(neighbours, world) : Board::in_memory(world);
  } catch (const NoSharedMemory& error) {  // the job can run without: peers' deaths are still seen
    log_warning(error.what(), "; going on, but a rank's error will not reach the others");
    board = Board::in_memory(world);
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

  auto control = std::make_unique<Control>(std::move(board), rank, std::move(here), processes);
  return make_group(std::move(transport), std::move(control),
                    engine_of_this_process(crowded(cpus, cpu_quota())), kept, topology_of(nodes));
}

}  // namespace peal::comm
