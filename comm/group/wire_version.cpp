// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/wire_version.h>

namespace peal::comm {

#if !defined(PEAL_WIRE_VERSION)  // a test has another
#define PEAL_WIRE_VERSION "peal 2"
#endif
std::string_view wire_version() { return PEAL_WIRE_VERSION; }

}  // namespace peal::comm
