// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/transport.h>

namespace peal::comm {

Ticket Transport::start_native(const NativeCall& call) {
  fail(concat("the ", name(), " transport has no native ", comm::name(call.what)));
}

}  // namespace peal::comm
