// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <peal/autograd/core/error.h>
#include <peal/data/shards/json_record.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

namespace peal::data {
namespace {

using Json = nlohmann::json;
constexpr std::size_t deepest = 8;

// A short form for messages.
std::string shown(const Json& value) {
  if (value.is_array()) return concat("an array of ", value.size());
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 40) + "..";
  return text;
}

const Json* find(const Json& object, std::string_view field) {
  const auto found = object.find(field);
  if (found != object.end()) return &*found;
  const std::size_t dot = field.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto inner = object.find(field.substr(0, dot));
  return inner != object.end() && inner->is_object() ? find(*inner, field.substr(dot + 1))
                                                     : nullptr;
}

// Whether every element of rows alike is a number or a bool; sizes become theirs.
bool find_sizes(const Json& value, std::size_t depth, std::vector<std::int64_t>& sizes) {
  if (!value.is_array()) return depth == sizes.size() && (value.is_number() || value.is_boolean());
  if (depth == deepest) return false;
  const auto count = static_cast<std::int64_t>(value.size());
  if (depth == sizes.size()) sizes.push_back(count);
  if (sizes[depth] != count) return false;
  if (count == 0) return depth + 1 == sizes.size();
  for (const Json& each : value) {
    // The first one says how deep the others are.
    const std::size_t before = sizes.size();
    if (!find_sizes(each, depth + 1, sizes)) return false;
    if (&each != &value.front() && sizes.size() != before) return false;
  }
  return true;
}

// Nothing that T rounds to another number; floating-point types round as always.
template <class T>
bool put_number(const Json& value, T& to) {
  if (value.is_boolean()) {
    to = static_cast<T>(value.get<bool>() ? 1 : 0);
    return true;
  }
  if constexpr (std::is_same_v<T, bool>) {
    const double number = value.get<double>();
    to = number != 0;
    return number == 0 || number == 1;
  } else if constexpr (std::is_integral_v<T>) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      to = static_cast<T>(number);
      return number <= static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    }
    const auto number = value.is_number_integer() ? value.get<std::int64_t>() : 0;
    to = static_cast<T>(number);
    return value.is_number_integer() && number >= std::int64_t{std::numeric_limits<T>::min()};
  } else {
    const double number = value.get<double>();
    if constexpr (std::is_same_v<T, double>) {
      to = number;
    } else {
      to = T(static_cast<float>(number));
    }
    return std::isfinite(static_cast<float>(to)) || std::is_same_v<T, double>;
  }
}

template <class T>
const Json* put_numbers(const Json& value, T*& to) {
  if (!value.is_array()) return put_number(value, *to++) ? nullptr : &value;
  for (const Json& each : value) {
    if (const Json* wrong = put_numbers(each, to)) return wrong;
  }
  return nullptr;
}

}  // namespace

struct JsonRecord::Object {
  Json all;

  template <class Holds>
  const Json& get(std::string_view field, const char* kind, const std::string& where,
                  const Holds& holds) const {
    const Json* const value = find(all, field);
    if (value == nullptr) {
      std::vector<std::string> names;
      for (const auto& [name, inner] : all.items()) names.push_back(name);
      fail(concat("[data] ", where, ": expected a field '", field, "', found ",
                  fmt::format("{}", fmt::join(names, ", "))));
    }
    PEAL_CHECK(holds(*value), "[data] ", where, ": expected ", kind, " in field '", field,
               "', got ", shown(*value));
    return *value;
  }
};

JsonRecord::JsonRecord(std::string_view line, std::string where)
    : object_(std::make_unique<Object>()), where_(std::move(where)) {
  constexpr std::string_view blanks = " \t\r\n";  // so that columns count from the first bracket
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  line = line.substr(0, line.find_last_not_of(blanks) + 1);
  try {
    object_->all = Json::parse(line);
  } catch (const Json::exception& failure) {
    std::string why = failure.what();
    why.erase(0, std::min(why.find("] ") + 2, why.size()));   // "[json.exception.. 101] "
    constexpr std::string_view line_of_text = "at line 1, ";  // it has one
    if (const auto at = why.find(line_of_text); at != std::string::npos) {
      why.replace(at, line_of_text.size(), "at ");
    }
    fail(concat("[data] ", where_, ": expected a line of JSON: ", why));
  }
  PEAL_CHECK(object_->all.is_object(), "[data] ", where_, ": expected a JSON object, got ",
             shown(object_->all));
}

JsonRecord::JsonRecord(JsonRecord&&) noexcept = default;
JsonRecord& JsonRecord::operator=(JsonRecord&&) noexcept = default;
JsonRecord::~JsonRecord() = default;

bool JsonRecord::has(std::string_view field) const {
  const Json* const value = find(object_->all, field);
  return value != nullptr && !value->is_null();
}

std::vector<std::string> JsonRecord::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_->all.items()) names.push_back(name);
  return names;
}

std::string JsonRecord::text(std::string_view field) const {
  return object_->get(field, "a text", where_, [](const Json& v) { return v.is_string(); })
      .get<std::string>();
}

std::vector<std::string> JsonRecord::texts(std::string_view field) const {
  const auto texts = [](const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(),
                                           [](const Json& each) { return each.is_string(); });
  };
  return object_->get(field, "an array of texts", where_, texts).get<std::vector<std::string>>();
}

std::int64_t JsonRecord::integer(std::string_view field) const {
  std::int64_t number = 0;
  object_->get(field, "an integer", where_, [&](const Json& value) {
    return value.is_number_integer() && put_number(value, number);
  });
  return number;
}

double JsonRecord::number(std::string_view field) const {
  return object_->get(field, "a number", where_, [](const Json& v) { return v.is_number(); })
      .get<double>();
}

bool JsonRecord::truth(std::string_view field) const {
  return object_->get(field, "true or false", where_, [](const Json& v) { return v.is_boolean(); })
      .get<bool>();
}

Tensor JsonRecord::tensor(std::string_view field, DType dtype) const {
  std::vector<std::int64_t> sizes;
  const Json& value =
      object_->get(field, "a number, or an array of numbers or of rows of one length", where_,
                   [&](const Json& json) { return find_sizes(json, 0, sizes); });
  const Tensor made = Tensor::empty(Shape(sizes), dtype, Device{});
  const Json* wrong = nullptr;
  visit(dtype, [&]<class T>() {
    T* to = static_cast<T*>(made.raw());
    wrong = put_numbers(value, to);
  });
  PEAL_CHECK(wrong == nullptr, "[data] ", where_, ": expected numbers that ", dtype,
             " holds in field '", field, "', got ", shown(*wrong));
  return made;
}

}  // namespace peal::data
