// SPDX-License-Identifier: Apache-2.0
// OutOfMemory (PyTorch: torch.OutOfMemoryError): the Error of a device that has no memory left,
// which a smaller batch may do without. On the CPU it is std::bad_alloc.
#pragma once

#include <peal/autograd/core/error.h>

namespace peal {

class OutOfMemory : public Error {
 public:
  using Error::Error;
};

}  // namespace peal
