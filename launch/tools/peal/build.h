// SPDX-License-Identifier: Apache-2.0
// What this build is: what CMake knows of it (CMakeLists.txt, commit.cmake). Thread safety:
// constants.
#pragma once

#include <string>

namespace peal::launch::build {

extern const std::string version, compiler, type;
extern const std::string options;  // "MPI yes, CUDA no, ..."
extern const bool has_mpi;
// Of the source tree when it was compiled, or "unknown"; "-dirty" where it had changes.
std::string commit();

}  // namespace peal::launch::build
