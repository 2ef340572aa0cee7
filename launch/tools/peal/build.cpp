// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/peal/build.h>

#include <fmt/core.h>

namespace peal::launch::build {

const std::string version = PEAL_VERSION, compiler = PEAL_COMPILER, type = PEAL_BUILD_TYPE;
const bool has_mpi = PEAL_HAS_MPI;
const std::string options = fmt::format("{}, fmt {}.{}.{}", PEAL_BUILD_OPTIONS, FMT_VERSION / 10000,
                                        FMT_VERSION / 100 % 100, FMT_VERSION % 100);

}  // namespace peal::launch::build
