// SPDX-License-Identifier: Apache-2.0
// The group that a test under mpirun runs on.
#pragma once

#include <peal/launch/job.h>

namespace peal::testing {

launch::Job& job();

}  // namespace peal::testing
