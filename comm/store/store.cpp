// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/store/store.h>

#include <charconv>

namespace peal::comm {

std::string named(const std::vector<std::string>& keys) {
  constexpr std::size_t shown = 3;
  std::string text;
  for (std::size_t i = 0; i < keys.size() && i < shown; ++i) {
    text += concat(i == 0 ? "'" : ", '", keys[i], "'");
  }
  if (keys.size() > shown) text += concat(" and ", keys.size() - shown, " more");
  return text;
}

std::int64_t number_in(const std::string& key, const std::string& value) {
  std::int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, problem] = std::from_chars(value.data(), end, number);
  PEAL_CHECK(value.empty() || (problem == std::errc{} && stop == end), "[store] the value of '",
             key, "' is no number");
  return number;
}

}  // namespace peal::comm
