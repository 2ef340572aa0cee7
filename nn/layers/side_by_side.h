// SPDX-License-Identifier: Apache-2.0
// Side by side: what a layer has that stands for a Linear of which it computes some features, its
// part of each of so many that lie one behind the other (queries, keys and values, say). A model
// that splits such features looks whether it gets them so:
//
//   if (const auto* some = c_attn.as<SideBySide>()) PEAL_CHECK(some->parts() == 3, ...);
//
// Thread safety: as of the layer.
#pragma once

#include <cstdint>

namespace peal::nn {

class SideBySide {
 public:
  virtual ~SideBySide() = default;
  virtual std::int64_t parts() const = 0;
  // Which of the equal shares of each it computes, from 0 on.
  virtual std::int64_t share() const = 0;
};

}  // namespace peal::nn
