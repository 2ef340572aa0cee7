// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/is_of_class.h>
#include <peal/nn/parallel/sharded/wrap_policy.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace peal::nn {

bool is_never_called(const ModelOutline::Part& part) {
  return is_of_class(part.type, "ModuleList") || is_of_class(part.type, "ModuleDict");
}

std::string_view module_of(std::string_view parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : parameter.substr(0, dot);
}

bool is_below(std::string_view path, std::string_view above) {
  return above.empty() ||
         (path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '.'));
}

WrapPolicy wrap_by_type(std::vector<std::string> types) {
  return [types = std::move(types)](const ModelOutline& outline) {
    std::vector<std::string> paths;
    std::set<std::string> there, found;
    for (const ModelOutline::Part& part : outline.modules) {
      if (part.path.empty()) continue;
      there.insert(part.type);
      for (const std::string& type : types) {
        if (!is_of_class(part.type, type)) continue;
        found.insert(type);
        paths.push_back(part.path);
        break;
      }
    }
    for (const std::string& type : types) {
      if (found.contains(type)) continue;
      std::string classes;
      for (const std::string& each : there) classes += ' ' + each;
      fail(concat("wrap_by_type: the model has no module of the class ", type,
                  ", but of:", classes.empty() ? " (none)" : classes));
    }
    return paths;
  };
}

WrapPolicy wrap_by_size(std::int64_t elements) {
  PEAL_CHECK(elements > 0, "wrap_by_size: expected at least 1 element, got ", elements);
  return [elements](const ModelOutline& outline) {
    std::unordered_map<std::string_view, std::int64_t> own;  // and of those below that are no units
    for (const ParameterSpec& parameter : outline.parameters) {
      own[module_of(parameter.name)] += parameter.shape.numel();
    }
    std::vector<std::string> paths;
    for (auto part = outline.modules.rbegin(); part != outline.modules.rend(); ++part) {
      const std::string& path = part->path;
      if (path.empty()) continue;
      if (own[path] >= elements && !is_never_called(*part)) {
        paths.push_back(path);
      } else {
        own[module_of(path)] += own[path];
      }
    }
    std::reverse(paths.begin(), paths.end());
    return paths;
  };
}

WrapPolicy wrap_by_name(std::vector<std::string> paths) {
  return [paths = std::move(paths)](const ModelOutline&) { return paths; };
}

}  // namespace peal::nn
