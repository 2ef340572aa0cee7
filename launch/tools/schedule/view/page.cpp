// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/draw/escaped.h>
#include <peal/launch/tools/schedule/view/page.h>

#include <nlohmann/json.hpp>

#include <utility>

namespace peal::launch {
namespace {

constexpr std::size_t most_bytes = 1'500'000;

void put(std::string& text, std::string_view where, std::string_view what) {
  text.replace(text.find(where), where.size(), what);
}

// No text in it can end the element that it stands in.
std::string inside_script(const nlohmann::json& data) {
  std::string text = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos; at += 6) {
    text.replace(at, 1, "\\u003c");
  }
  return text;
}

}  // namespace

std::string page(const nlohmann::json& data) {
  std::string text(page_html);
  put(text, "@TITLE@", comm::escaped(data.at("title").get<std::string>()));
  put(text, "@CSS@", page_css);
  put(text, "@SCRIPT@", page_js);
  put(text, "@DATA@", inside_script(data));
  PEAL_CHECK(text.size() <= most_bytes, "view: expected a page of at most ", most_bytes,
             " bytes, got ", text.size(), ": take fewer ranks, elements, stages or micro-batches");
  return text;
}

}  // namespace peal::launch
