// SPDX-License-Identifier: Apache-2.0
// OutOfMemory (PyTorch: torch.OutOfMemoryError): the Error of a device that has no memory left,
// which a smaller batch may do without. On the CPU it is std::bad_alloc. Where one rank's failure
// is all ranks', it is one of these on all, also of the CPU (comm/group/agree.h).
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
