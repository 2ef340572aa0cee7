// SPDX-License-Identifier: Apache-2.0
// OutOfMemory (PyTorch: torch.OutOfMemoryError): the Error of a device, or of the host, that has no
// memory left for a tensor, which a smaller batch may do without. What else the host has no memory
// for is std::bad_alloc. Where one rank's failure is all ranks', it is one of these on all
// (comm/group/agree.h).
#pragma once

#include <peal/autograd/core/error.h>

#include <string_view>

namespace peal {

class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// What the words of such a failure begin with (failure_words.h).
inline constexpr std::string_view out_of_memory_words = "out of memory: ";

}  // namespace peal
