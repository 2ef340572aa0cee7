// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/nn/parallel/bucket_size.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/planning.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

namespace peal::nn {
namespace {

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<int> numbers_of(const std::vector<std::string>& names, const NamedTensors& parameters) {
  std::vector<int> numbers;
  for (const std::string& name : names) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& tensor) { return tensor.first == name; });
    if (found != parameters.end()) numbers.push_back(static_cast<int>(found - parameters.begin()));
  }
  return numbers;
}

// Devices have other numbers on other ranks; which of the model's own it is, all say alike.
std::vector<ParameterSpec> specs_of(const MemberList& members, const DDPOptions& options,
                                    int world) {
  std::vector<ParameterSpec> specs;
  std::vector<Device> devices;
  for (std::size_t p = 0; p < members.parameters.size(); ++p) {
    const auto& [name, tensor] = members.parameters[p];
    const auto device = std::find(devices.begin(), devices.end(), tensor.device());
    const auto part = static_cast<int>(device - devices.begin());
    if (device == devices.end()) devices.push_back(tensor.device());
    const DType dtype = options.mixed_precision.gradient_of(tensor.dtype());
    const bool owned = options.owner_of && world > 1;
    const int owner = owned ? options.owner_of(tensor) : everyone;
    PEAL_CHECK(owner >= everyone && owner < world, name, " is said to be rank ", owner,
               "'s, and there are ", world);
    specs.push_back({name, tensor.shape(), dtype, members.trained[p], among(options.delayed, name),
                     part, owner});
  }
  return specs;
}

}  // namespace

std::string dtypes_of(const MixedPrecision& settings) {
  const auto text = [](const std::optional<DType>& dtype) {
    return dtype ? concat(*dtype) : std::string("own");
  };
  return concat("parameters ", text(settings.param_dtype), " reduce ", text(settings.reduce_dtype),
                " buffers ", text(settings.buffer_dtype), " outputs ", text(settings.output_dtype),
                " inputs ", settings.cast_forward_inputs, " kept ",
                settings.keep_low_precision_grads);
}

Planned plan_of(const MemberList& members, const DDPOptions& options,
                const comm::ProcessGroup& group, std::span<const int> order) {
  Planned planned{specs_of(members, options, group.world()), {}, {}};
  const std::vector<int> given = numbers_of(options.order, members.parameters);
  planned.caps =
      chosen_caps(planned.specs, options.buckets,
                  options.all_reduce_cost ? options.all_reduce_cost : assumed_cost(group.nodes()));
  planned.buckets = plan_buckets(planned.specs, planned.caps, order.empty() ? given : order);
  return planned;
}

std::string why_not(const std::function<void()>& f) {
  const std::string text = failure_in(f);
  constexpr std::string_view ours = "[ddp] ";
  return text.starts_with(ours) ? text.substr(ours.size()) : text;
}

Planned plan_or_why(const MemberList& members, const DDPOptions& options,
                    const comm::ProcessGroup& group, std::string& why) {
  Planned planned;
  why = why_not([&] { planned = plan_of(members, options, group); });
  if (!why.empty()) why = concat("no plan of buckets can be made: ", why);
  return planned;
}

Planned plan_of_all(const MemberList& members, const DDPOptions& options,
                    const comm::ProcessGroup& group, std::span<const int> order) {
  try {
    return plan_of(members, options, group, order);
  } catch (const std::exception& error) {
    fail_everywhere(group, concat("no plan of buckets can be made: ", error.what()));
  }
}

std::string describe(const Planned& planned, const MemberList& members, const DDPOptions& options) {
  std::string text;
  for (const auto& [name, tensor] : members.buffers) {
    text += concat("buffer ", name, " ", tensor.dtype(), " ", tensor.shape(), "\n");
  }
  for (const auto& [what, names] :
       {std::pair("ignored ", &options.ignored), std::pair("delayed ", &options.delayed),
        std::pair("order ", &options.order)}) {
    for (const std::string& name : *names) text += concat(what, name, "\n");
  }
  text += concat("broadcast_buffers ", options.broadcast_buffers, "\nfind_unused_parameters ",
                 options.find_unused_parameters, "\nstatic_graph ", options.static_graph,
                 "\nmixed_precision ", dtypes_of(options.mixed_precision), "\ncheck_every ",
                 options.check_every, "\nmeasure_every ", options.measure_every, "\n");
  for (const auto& [name, first] : members.tied) text += concat("tied ", name, " is ", first, "\n");
  return text + describe(planned.specs, planned.buckets);
}

void check_names(const Module& module, const DDPOptions& options) {
  const NamedTensors parameters = module.named_parameters(), buffers = module.named_buffers();
  const auto check = [&](std::string_view what, const std::vector<std::string>& names,
                         bool buffers_too) {
    for (const std::string& name : names) {
      const auto is = [&](const auto& tensor) { return tensor.first == name; };
      const bool buffer = buffers_too && std::any_of(buffers.begin(), buffers.end(), is);
      PEAL_CHECK(buffer || std::any_of(parameters.begin(), parameters.end(), is), "[ddp] ", what,
                 " has ", name, ", which the model has not");
    }
  };
  check("ignored", options.ignored, true);
  check("delayed", options.delayed, false);
  check("order", options.order, false);
}

bool learns_order(const DDPOptions& options) {
  const bool alike = options.static_graph || !options.find_unused_parameters;
  return alike && options.order.empty();
}

std::vector<int> common_order(const comm::ProcessGroup& group, std::vector<int> mine,
                              const MemberList& members, const DDPOptions& options,
                              std::uint64_t tag) {
  const auto trained = std::count(members.trained.begin(), members.trained.end(), true);
  if (!options.static_graph && static_cast<std::ptrdiff_t>(mine.size()) < trained) mine.clear();
  const Tensor message = Tensor::zeros({trained}, DType::i64, Device{});  // numbers from 1
  auto* const numbers = message.data<std::int64_t>();
  std::transform(mine.begin(), mine.end(), numbers, [](int p) { return p + 1; });
  group.broadcast(message, 0, {"the order in which gradients come", tag}).wait();
  std::vector<int> order;
  for (std::int64_t i = 0; i < trained && numbers[i] > 0; ++i) {
    order.push_back(static_cast<int>(numbers[i] - 1));
  }
  return order;
}

}  // namespace peal::nn
