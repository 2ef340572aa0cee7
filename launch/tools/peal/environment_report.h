// SPDX-License-Identifier: Apache-2.0
// peal env: what a bug report needs (accelerate env, torch.utils.collect_env): this build, this
// machine as a process in it sees it, and what is set. Nothing in it is secret. Thread safety: one
// thread.
#pragma once

#include <string>

namespace peal::launch {

// Lines of "name: value". What cannot be found out is "unknown", and never an error.
std::string environment_report();

}  // namespace peal::launch
