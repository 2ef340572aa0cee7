// SPDX-License-Identifier: Apache-2.0
#include "below_mpi.h"

#include <mpi.h>
#include <sched.h>

namespace peal::testing {

BelowMpi& below_mpi() {
  static BelowMpi the_one;
  return the_one;
}

}  // namespace peal::testing

namespace {

using peal::testing::below_mpi;

std::atomic<int> inside{0};

// A call's time in MPI. `long_ones` give other threads the chance to come in.
class Inside {
 public:
  explicit Inside(bool takes_long = false) {
    ++below_mpi().calls;
    if (inside.fetch_add(1) > 0) ++below_mpi().overlaps;
    if (std::this_thread::get_id() != below_mpi().owner) ++below_mpi().foreign;
    for (int i = 0; takes_long && i < 20; ++i) sched_yield();
  }
  ~Inside() { --inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

bool fails(std::atomic<int>& countdown) {
  return countdown.load() > 0 && countdown.fetch_sub(1) == 1;
}

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int, int* provided) {
  return PMPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, provided);
}

int MPI_Query_thread(int* provided) {
  *provided = below_mpi().level;
  return MPI_SUCCESS;
}

int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* found) {
  static thread_local int limit;
  const Inside here;
  limit = below_mpi().highest_tag;
  if (key != MPI_TAG_UB || limit == 0) return PMPI_Comm_get_attr(comm, key, value, found);
  *static_cast<void**>(value) = &limit;
  *found = 1;
  return MPI_SUCCESS;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Inside here;
  if (fails(below_mpi().failing_isend)) return MPI_ERR_OTHER;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const Inside here;
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

int MPI_Testsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  const Inside here;
  ++below_mpi().testsomes;
  return PMPI_Testsome(count, requests, done, indices, statuses);
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  const Inside here;
  return PMPI_Test(request, done, status);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  const Inside here;
  return PMPI_Ibarrier(comm, request);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
  const Inside here(true);
  return PMPI_Comm_idup(comm, copy, request);
}

int MPI_Comm_group(MPI_Comm comm, MPI_Group* group) {
  const Inside here;
  if (fails(below_mpi().failing_comm_group)) return MPI_ERR_OTHER;
  return PMPI_Comm_group(comm, group);
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  const Inside here(true);
  return PMPI_Comm_create_group(comm, group, tag, made);
}

int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  const Inside here(true);
  return PMPI_Comm_rank(comm, rank);
}

int MPI_Comm_size(MPI_Comm comm, int* size) {
  const Inside here(true);
  return PMPI_Comm_size(comm, size);
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  const Inside here;
  return PMPI_Comm_set_errhandler(comm, handler);
}

int MPI_Group_incl(MPI_Group group, int count, const int* ranks, MPI_Group* part) {
  const Inside here;
  return PMPI_Group_incl(group, count, ranks, part);
}

int MPI_Group_free(MPI_Group* group) {
  const Inside here;
  return PMPI_Group_free(group);
}

int MPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count) {
  const Inside here;
  return PMPI_Get_count(status, type, count);
}

int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
                   MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  const Inside here;
  if (fails(below_mpi().failing_iallgather)) return MPI_ERR_OTHER;
  return PMPI_Iallgather(in, in_count, in_type, out, out_count, out_type, comm, request);
}

int MPI_Iallgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out,
                    const int* counts, const int* places, MPI_Datatype out_type, MPI_Comm comm,
                    MPI_Request* request) {
  const Inside here;
  return PMPI_Iallgatherv(in, in_count, in_type, out, counts, places, out_type, comm, request);
}

int MPI_Comm_free(MPI_Comm* comm) {
  const Inside here(true);
  return PMPI_Comm_free(comm);
}

}  // extern "C"
