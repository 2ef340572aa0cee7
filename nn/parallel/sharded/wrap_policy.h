// SPDX-License-Identifier: Apache-2.0
// Wrap policies (PyTorch: auto_wrap_policy): which modules of a model become units of
// FullyShardedDataParallel, whose parameters are gathered and freed together. A policy is a
// function of names, types and sizes alone, so all ranks choose the same units, and a plan is made
// and printed without a model's memory:
//
//   wrap_by_type({"GptBlock"})         every module of that class
//   wrap_by_size(1 << 20)              from the leaves up, whatever has so many elements by itself
//   wrap_by_name({"h.0", "h.1"})       these
//
// The model itself is a unit always, of what no other has. Thread safety: values.
#pragma once

#include <peal/nn/parallel/bucket_plan.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::nn {

// What is planned of a model, without its values.
struct ModelOutline {
  struct Part {
    std::string path, type;  // "h.0", "peal::nn::GptBlock"; the model itself is ""
  };
  std::vector<Part> modules;              // parents before their children, each once
  std::vector<ParameterSpec> parameters;  // each once, by its first name
  // Of a tied parameter, each further name with the first.
  std::vector<std::pair<std::string, std::string>> tied;
};

// The path of the module that has a parameter of this name: "h.0.attn" of "h.0.attn.bias".
std::string_view module_of(std::string_view parameter);
// Whether the module at `path` is the one at `above`, or below it.
bool is_below(std::string_view path, std::string_view above);

// Its elements are called, and it is not (ModuleList, ModuleDict): as a unit it would never be
// gathered.
bool is_never_called(const ModelOutline::Part& part);

// Paths of units, which plan_units (shard_plan.h) checks. Error: a type that the model has not.
using WrapPolicy = std::function<std::vector<std::string>(const ModelOutline& outline)>;

// By the class, with its namespace or without: a class made from it is another.
WrapPolicy wrap_by_type(std::vector<std::string> types);
// `elements` at least, of parameters that no module below has taken. Error below 1.
WrapPolicy wrap_by_size(std::int64_t elements);
// Those of these paths in the model.
WrapPolicy wrap_by_name(std::vector<std::string> paths);

}  // namespace peal::nn
