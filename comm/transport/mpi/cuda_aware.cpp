// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mpi/cuda_aware.h>

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <cstdlib>
#include <string_view>

namespace peal::comm {

bool mpi_reaches_devices() {
  if (const char* said = std::getenv("PEAL_MPI_CUDA_AWARE")) {
    const std::string_view value = said;
    PEAL_CHECK(value == "0" || value == "1", "PEAL_MPI_CUDA_AWARE: expected 0 or 1, got '", value,
               "'");
    return value == "1";
  }
#if defined(OPEN_MPI) && defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

}  // namespace peal::comm
