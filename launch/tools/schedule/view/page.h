// SPDX-License-Identifier: Apache-2.0
// Page: one HTML file that needs nothing else, with its style, its program and the data that it
// shows in it.
//
// Thread safety: a pure function.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace peal::launch {

// Written by embed.cmake, of the files of this folder: its scripts are one behind the other.
extern const std::string_view page_html, page_css, page_js;

// `data` is {"title", "command", "views": [...]}, the views made by schedule_json() and the other
// makers of this folder. Error where the page is larger than 1.5 MB, which a browser opens at once.
std::string page(const nlohmann::json& data);

}  // namespace peal::launch
