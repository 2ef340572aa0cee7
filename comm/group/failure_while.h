// SPDX-License-Identifier: Apache-2.0
// What a rank does by itself before ranks agree (agree.h), whatever its time: it reads a file, say,
// while the others wait for it. What goes wrong there, all are told:
//
//   const std::string wrong =
//       failure_while(group, "reads a checkpoint", [&] { file.emplace(path); });
//   agree_unless(group, "[launch] the checkpoint", file ? file->checksum() : "", wrong,
//                "copy one file to all");
//
// Thread safety: as the group's.
#pragma once

#include <peal/autograd/core/failure_words.h>
#include <peal/comm/group/process_group.h>

#include <string>
#include <string_view>

namespace peal::comm {

// What f() fails with; empty where it does not. Meanwhile the rank says that it does so
// (ProcessGroup::busy()). Not collective.
template <class F>
std::string failure_while(const ProcessGroup& group, std::string_view doing, F&& f) {
  const auto busy = group.busy(doing);
  return failure_in(f);
}

}  // namespace peal::comm
