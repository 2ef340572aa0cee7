// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/launch/training/trainer/training_arguments.h>
#include <peal/launch/training/trainer/updates.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <type_traits>

namespace peal::launch {
namespace {

using Json = nlohmann::ordered_json;

// What an argument may be.
struct ArgumentCheck {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // `least` itself is too little
  std::vector<std::string> words = {};

  bool is_any() const { return std::isinf(least) && words.empty(); }
  // What there is to say of a value; empty where it is one of them.
  std::string fault(double value) const {
    if ((above ? value > least : value >= least) && value <= most) return "";
    return fmt::format("expected {}, got {}", in_text(), value);
  }
  std::string fault(const std::string& value) const {
    if (words.empty() || std::find(words.begin(), words.end(), value) != words.end()) return "";
    return fmt::format("expected {}, got '{}'{}", in_text(), value, did_you_mean(value, words));
  }
  std::string in_text() const {
    if (!words.empty()) return fmt::format("one of {}", fmt::join(words, ", "));
    if (std::isinf(least)) return "";
    if (!std::isinf(most)) return fmt::format("{} to {}", least, most);
    return above ? fmt::format("more than {}", least) : fmt::format("{} or more", least);
  }
};

ArgumentCheck any() { return {}; }
ArgumentCheck at_least(double least) { return {.least = least}; }
ArgumentCheck above(double least) { return {.least = least, .above = true}; }
ArgumentCheck share() { return {.least = 0, .most = 1}; }
ArgumentCheck words(std::vector<std::string> all) { return {.words = std::move(all)}; }

struct Row {
  const char *name, *help;
  ArgumentCheck check;
};

// f(row, field) for each row; F sees the field's type.
template <class Arguments, class F>
void each_argument(Arguments& arguments, F&& f) {
#define PEAL_VISIT(type, name, standard, check, help) f(Row{#name, help, check}, arguments.name);
  PEAL_TRAINING_ARGUMENTS(PEAL_VISIT)
#undef PEAL_VISIT
}

template <class T>
struct Inner {
  using Type = T;
  static constexpr bool optional = false;
};
template <class T>
struct Inner<std::optional<T>> {
  using Type = T;
  static constexpr bool optional = true;
};

template <class T>
std::string word_of_type() {
  using Type = typename Inner<T>::Type;
  if (std::is_same_v<Type, bool>) return "true or false";
  if (std::is_same_v<Type, std::int64_t>) return "a whole number";
  return std::is_same_v<Type, double> ? "a number" : "text";
}

template <class T>
Json in_json(const T& value) {
  if constexpr (Inner<T>::optional) {
    return value ? Json(*value) : Json(nullptr);
  } else {
    return Json(value);
  }
}

template <class T>
bool is_of_type(const Json& json) {
  if (std::is_same_v<T, bool>) return json.is_boolean();
  if (std::is_same_v<T, std::int64_t>) return json.is_number_integer();
  return std::is_same_v<T, double> ? json.is_number() : json.is_string();
}

template <class T>
void read_value(const Row& row, const Json& json, T& value) {
  using Type = typename Inner<T>::Type;
  if constexpr (Inner<T>::optional) {
    if (json.is_null()) return value.reset();
  }
  if constexpr (std::is_same_v<Type, std::string>) {
    // transformers has an object here, of which this keeps the text.
    if (json.is_object() && row.name == std::string_view("lr_scheduler_kwargs")) {
      value = json.dump();
      return;
    }
  }
  PEAL_CHECK(is_of_type<Type>(json), row.name, ": expected ", word_of_type<T>(), ", got ",
             json.dump());
  value = json.get<Type>();
}

template <class T>
std::string fault_of(const Row& row, const T& value) {
  if constexpr (Inner<T>::optional) {
    return value ? fault_of(row, *value) : "";
  } else if constexpr (std::is_same_v<T, bool>) {
    return "";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return row.check.fault(value);
  } else {
    return row.check.fault(static_cast<double>(value));
  }
}

void check_steps(std::string_view name, double steps) {
  PEAL_CHECK(steps < 1 || steps == std::floor(steps), "[trainer] ", name,
             ": expected a whole number of updates, or a part of all below 1, got ", steps);
}

std::string with_eval(const std::string& metric) {
  return metric.starts_with("eval_") ? metric : "eval_" + metric;
}

std::string names_of_option(const std::string& name) {
  std::string dashes = name;
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  return dashes == name ? "--" + name : "--" + name + ",--" + dashes;
}

std::string content_of_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream all;
  all << file.rdbuf();
  PEAL_CHECK(file && all, path, ": cannot be read");
  return all.str();
}

void read_precision(TrainingArguments& arguments) {
  const char* const named = std::getenv("PEAL_PRECISION");
  if (named == nullptr || *named == 0 || arguments.bf16 || arguments.fp16) return;
  const std::string precision = named;
  PEAL_CHECK(precision == "f32" || precision == "bf16" || precision == "f16",
             "PEAL_PRECISION: expected f32, bf16 or f16, got '", precision, "'");
  arguments.bf16 = precision == "bf16";
  arguments.fp16 = precision == "f16";
}

// The word behind "--arguments", if it is there.
std::string file_of_arguments(int argc, char** argv) {
  constexpr std::string_view option = "--arguments";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == option && i + 1 < argc) return argv[i + 1];
    if (word.starts_with(option) && word.size() > option.size() && word[option.size()] == '=') {
      return std::string(word.substr(option.size() + 1));
    }
  }
  return "";
}

}  // namespace

std::string TrainingArguments::best_metric() const {
  if (!metric_for_best_model.empty()) return with_eval(metric_for_best_model);
  return load_best_model_at_end || save_strategy == "best" ? "eval_loss" : "";
}

bool TrainingArguments::best_is_greatest() const {
  return greater_is_better.value_or(!best_metric().ends_with("loss"));
}

std::vector<std::string> TrainingArguments::fsdp_classes() const {
  std::vector<std::string> all;
  std::istringstream in(fsdp_transformer_layer_cls_to_wrap);
  for (std::string name; std::getline(in, name, ',');) {
    std::erase(name, ' ');
    all.push_back(std::move(name));
  }
  return all;
}

void TrainingArguments::check() const {
  each_argument(*this, [](const Row& row, const auto& value) {
    const std::string fault = fault_of(row, value);
    PEAL_CHECK(fault.empty(), "[trainer] ", row.name, ": ", fault);
  });
  PEAL_CHECK(!(bf16 && fp16),
             "[trainer] bf16 and fp16: a model computes in one of them; choose one");
  check_steps("logging_steps", logging_steps);
  check_steps("save_steps", save_steps);
  check_steps("eval_steps", evaluation_steps());
  PEAL_CHECK(max_steps == -1 || max_steps > 0,
             "[trainer] max_steps: expected 1 or more updates, or -1, got ", max_steps);
  PEAL_CHECK(!output_dir.empty() || save_strategy == "no",
             "[trainer] output_dir: checkpoints need a folder; name one, or save_strategy no");
  PEAL_CHECK(report_to == "none" || (!run_name.empty() && run_name.find('/') == std::string::npos),
             "[trainer] run_name: files of output_dir are called so (report_to ", report_to,
             "); expected a name without /, got '", run_name, "'");
  for (const std::string& name : fsdp_classes()) {
    PEAL_CHECK(!name.empty(),
               "[trainer] fsdp_transformer_layer_cls_to_wrap: expected names of classes with "
               "commas between, got '",
               fsdp_transformer_layer_cls_to_wrap, "'");
  }
  PEAL_CHECK(
      strategy == "fsdp" || (fsdp_transformer_layer_cls_to_wrap.empty() && !fsdp_offload_params),
      "[trainer] ",
      fsdp_offload_params ? "fsdp_offload_params" : "fsdp_transformer_layer_cls_to_wrap",
      ": the strategy is '", strategy, "', which cuts no model into units; take 'fsdp'");
  static_cast<void>(
      schedule_of(lr_scheduler_type, 0, 1'000'000'000, learning_rate, lr_scheduler_kwargs));
  if (best_metric().empty()) return;
  PEAL_CHECK(eval_strategy != "no", "[trainer] metric_for_best_model ", best_metric(),
             ": nothing is evaluated (eval_strategy no); say when");
  if (!load_best_model_at_end) return;
  PEAL_CHECK(eval_strategy == save_strategy || save_strategy == "best",
             "[trainer] load_best_model_at_end: a checkpoint is the best by the evaluation of its "
             "time, so eval_strategy and save_strategy are the same; got ",
             eval_strategy, " and ", save_strategy);
  if (save_strategy != "steps") return;
  const double times = save_steps / evaluation_steps();
  PEAL_CHECK(std::abs(times - std::round(times)) < 1e-9 && times > 0.5,
             "[trainer] load_best_model_at_end: save_steps (", save_steps,
             ") must be a multiple of eval_steps (", evaluation_steps(),
             "), so that each checkpoint was evaluated");
}

std::string TrainingArguments::to_json() const {
  Json all;
  each_argument(*this, [&](const Row& row, const auto& value) { all[row.name] = in_json(value); });
  return all.dump(2) + "\n";
}

void TrainingArguments::read_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  PEAL_CHECK(json.is_object(), "[trainer] expected the arguments as an object of JSON, {...}");
  TrainingArguments changed = *this;
  std::vector<std::string> names;
  each_argument(changed, [&](const Row& row, auto& value) {
    names.emplace_back(row.name);
    if (const auto found = json.find(row.name); found != json.end()) read_value(row, *found, value);
  });
  for (const auto& [key, value] : json.items()) {
    PEAL_CHECK(std::find(names.begin(), names.end(), key) != names.end(),
               "[trainer] there is no argument '", key, "'", did_you_mean(key, names));
  }
  *this = changed;
}

void TrainingArguments::save_json(const std::string& path) const {
  const std::string text = to_json();
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void TrainingArguments::load_json(const std::string& path) {
  const std::string text = content_of_file(path);
  try {
    read_json(text);
  } catch (const Error& error) {
    fail(concat(path, ": ", error.what()));
  }
}

std::vector<ArgumentRow> argument_rows() {
  std::vector<ArgumentRow> rows;
  const TrainingArguments arguments;
  each_argument(arguments, [&](const Row& row, const auto& value) {
    rows.push_back({row.name, word_of_type<std::remove_cvref_t<decltype(value)>>(),
                    in_json(value).dump(), row.check.in_text(), row.help});
  });
  return rows;
}

void add_arguments(CommandLine& line, TrainingArguments& arguments) {
  each_argument(arguments, [&](const Row& row, auto& value) {
    CommandLine::Option option = line.option(names_of_option(row.name), &value, row.help);
    if (!row.check.words.empty()) option.one_of(row.check.words);
    if (row.name == std::string_view("device")) option.environment("PEAL_DEVICE");
    option.group("Training");
  });
}

std::optional<int> parse_arguments(CommandLine& line, TrainingArguments& arguments, int argc,
                                   char** argv) {
  add_arguments(line, arguments);
  std::string path;
  line.option("--arguments", &path, "file of JSON with any of the arguments; what is typed counts");
  try {
    if (const std::string file = file_of_arguments(argc, argv); !file.empty()) {
      arguments.load_json(file);
    }
    if (const auto status = line.parse(argc, argv)) return status;
    read_precision(arguments);
    arguments.check();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return std::nullopt;
}

}  // namespace peal::launch
