// SPDX-License-Identifier: Apache-2.0
// Bootstrap: the only part of launch/ that knows MPI and NCCL. A build without them has the same
// functions, of which start_mpi is an Error. Thread safety: the main thread.
#pragma once

#include <peal/comm/group/process_group.h>

#include <memory>
#include <string>
#include <utility>

namespace peal::launch {

// True when the program called MPI_Init itself.
bool mpi_was_started();
// Starts MPI unless it was; true when this call did, and finish_mpi() is due. MPI waits for all
// ranks in both: a process for which that takes longer than PEAL_TIMEOUT (and than 5 s) says so and
// ends.
bool start_mpi();
void finish_mpi();
std::pair<int, int> mpi_world();  // rank and world of MPI_COMM_WORLD
comm::ProcessGroup mpi_world_group();

// Whether MPI moves what lies on devices itself.
bool mpi_reaches_devices();

// The device's place on its bus, as the kernel has it ("0000:1b:00.0"); empty without CUDA.
std::string pci_bus_id(Device device);

// Collectives on tensors of this device go over NCCL from now on. Collective; nothing without NCCL.
void attach_nccl(const comm::ProcessGroup& group, Device device);
// They go over CUDA IPC. Collective; where they cannot, and without CUDA, the group stays as it
// was, and all ranks are told why; else empty. Error where PEAL_IPC_ONE_SHOT is no number.
std::string attach_cuda_ipc(const comm::ProcessGroup& group, Device device);
// They go over MPI, which reaches the device, and are reduced there. Collective; nothing without
// CUDA.
void attach_device_aware(const comm::ProcessGroup& group, Device device);

}  // namespace peal::launch
