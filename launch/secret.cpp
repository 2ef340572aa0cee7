// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/secret.h>

#include <fmt/format.h>

#include <random>

namespace peal::launch {

std::string fresh_secret() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace peal::launch
