// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/comm/group/told_choices.h>

#include <bit>
#include <string>

namespace peal::comm {

void ToldChoices::tell(std::string_view who, const Asked& asked, const Choice& choice) {
  const int size_class = std::bit_width(static_cast<std::uint64_t>(asked.bytes));
  {
    const std::lock_guard lock(mutex_);
    if (!told_.emplace(asked.what, size_class, asked.dtype, asked.shared).second) return;
  }
  std::string how(choice.algorithm);
  if (choice.chunk > 0) how += concat(" in chunks of ", choice.chunk, " bytes");
  log_info("[comm] ", who, ": ", name(asked.what), " of ", asked.bytes, " bytes (", asked.dtype,
           ") on ", asked.world, " ranks", asked.shared ? " that share memory: " : ": ", how, " (",
           choice.why, ")");
}

}  // namespace peal::comm
