// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/schedule/commands.h>
#include <peal/launch/tools/schedule/view/page.h>
#include <peal/launch/tools/schedule/view/write_page.h>

#include <nlohmann/json.hpp>

#include <utility>

namespace peal::launch {

void write_page(const PageOptions& options, const std::string& title, nlohmann::json views) {
  write_file(options.output,
             page({{"title", title}, {"command", options.command}, {"views", std::move(views)}}));
}

}  // namespace peal::launch
