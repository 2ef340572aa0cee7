// SPDX-License-Identifier: Apache-2.0
// A line of a file of JSON lines: an object, whose fields are asked for by name. A name that the
// object has not may be a way through inner ones, "meta.language". Thread safety: a value that is
// only read.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace peal::data {

class JsonRecord {
 public:
  // `where` is what errors call the line ("reviews.jsonl:17"). Error: it is no JSON object.
  JsonRecord(std::string_view line, std::string where);
  JsonRecord(JsonRecord&&) noexcept;
  JsonRecord& operator=(JsonRecord&&) noexcept;
  ~JsonRecord();

  // Whether it is there, and not null.
  bool has(std::string_view field) const;
  std::vector<std::string> names() const;

  // Errors, which say what is there instead: a field that is missing, or of another kind.
  std::string text(std::string_view field) const;
  std::vector<std::string> texts(std::string_view field) const;  // an array of them
  std::int64_t integer(std::string_view field) const;
  double number(std::string_view field) const;
  bool truth(std::string_view field) const;
  // A number or bool as a scalar, an array of them, or of arrays that are alike, as [n, ...].
  // Errors also: rows of other lengths, a number that the type does not hold.
  Tensor tensor(std::string_view field, DType dtype = DType::f32) const;

  const std::string& where() const { return where_; }

 private:
  struct Object;
  std::unique_ptr<Object> object_;
  std::string where_;
};

}  // namespace peal::data
