// SPDX-License-Identifier: Apache-2.0
// Collective communication between ranks: process groups, their operations, agreement, ranks that
// are threads, and processes that a store brings together. Who starts groups over MPI or NCCL by
// hand includes peal/comm/start/mpi.h or nccl.h beside it, which see those libraries; launch::Job
// does so by itself. Plans as values are in peal/comm/algorithms/table.h, verify/verify.h,
// draw/draw.h and simulate/simulate.h.
#pragma once

#include <peal/comm/group/agree.h>
#include <peal/comm/group/coalescing.h>
#include <peal/comm/group/device_mesh.h>
#include <peal/comm/group/process_group.h>
#include <peal/comm/group/selection.h>
#include <peal/comm/group/work.h>
#include <peal/comm/start/processes.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/store/store.h>
