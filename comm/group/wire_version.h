// SPDX-License-Identifier: Apache-2.0
// Wire version: of what ranks say to each other and leave in common memory. A world's ranks have
// one; others are turned away at the start. Thread safety: a constant.
#pragma once

#include <string_view>

namespace peal::comm {

std::string_view wire_version();

}  // namespace peal::comm
