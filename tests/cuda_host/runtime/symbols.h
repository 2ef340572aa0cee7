// SPDX-License-Identifier: Apache-2.0
// The names of kernels, read from the running program's own table of symbols, which has those of
// anonymous namespaces too. Thread safety: any thread.
#pragma once

#include <string>

namespace cuda_host {

// As the compiler writes it, "peal::cuda::each<...>(...)"; the address where there is none.
// Null where there is none; else as the linker knows it.
const char* symbol_of(const void* function);
std::string name_of(const void* function);

}  // namespace cuda_host
