// SPDX-License-Identifier: Apache-2.0
// How many launches each kernel has had, by its full name. Thread safety: under queue.h's lock.
#pragma once

#include <map>
#include <string>

namespace cuda_host {

std::map<std::string, std::size_t> launches();

}  // namespace cuda_host
