// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>

namespace peal {

void fail(std::string message) { throw Error(std::move(message)); }

}  // namespace peal
