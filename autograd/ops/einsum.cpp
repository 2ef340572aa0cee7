// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/einsum.h>
#include <peal/autograd/ops/labels.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

namespace peal {
namespace {

// Letters are labels by their code; what "..." stands for has these, counted from the last one.
constexpr int unnamed = 128;

// The equation as it is read: an operand's or the result's letters, and where its "..." stands.
struct Term {
  Labels letters;
  std::optional<std::size_t> ellipsis;
};

Term read_term(std::string_view equation, std::string_view text) {
  Term term;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (text.substr(i, 3) == "...") {
      PEAL_CHECK(!term.ellipsis, "einsum \"", equation, "\": '...' twice in '", text, "'");
      term.ellipsis = term.letters.size();
      i += 2;
      continue;
    }
    PEAL_CHECK(std::isalpha(static_cast<unsigned char>(c)), "einsum \"", equation,
               "\": expected letters, '...', ',' and one '->', got '", c, "'");
    term.letters.push_back(c);
  }
  return term;
}

std::vector<Term> read_terms(std::string_view equation, std::string_view left) {
  std::vector<Term> terms;
  while (true) {
    const std::size_t comma = left.find(',');
    terms.push_back(read_term(equation, left.substr(0, comma)));
    if (comma == std::string_view::npos) return terms;
    left.remove_prefix(comma + 1);
  }
}

// With `count` dimensions in the place of "...".
Labels spelled_out(const Term& term, int count) {
  Labels labels = term.letters;
  if (!term.ellipsis) return labels;
  const auto at = labels.begin() + static_cast<std::ptrdiff_t>(*term.ellipsis);
  Labels between;
  for (int i = count; i > 0; --i) between.push_back(unnamed + i - 1);
  labels.insert(at, between.begin(), between.end());
  return labels;
}

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

Equation read_equation(std::string_view equation, const Tensors& x) {
  const std::size_t arrow = equation.find("->");
  const std::vector<Term> terms = read_terms(equation, equation.substr(0, arrow));
  PEAL_CHECK(terms.size() == x.size(), "einsum \"", equation, "\": it names ", terms.size(),
             " operands, got ", x.size());
  Equation all;
  int most = 0;  // that "..." stands for
  std::map<int, int> times;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const int named = static_cast<int>(terms[i].letters.size()), others = x[i].dim() - named;
    PEAL_CHECK(terms[i].ellipsis ? others >= 0 : others == 0, "einsum \"", equation, "\": operand ",
               i, " has ", named, " letters, and the shape ", x[i].shape());
    for (const int letter : terms[i].letters) ++times[letter];
    most = std::max(most, others);
    all.operands.push_back(spelled_out(terms[i], others));
  }
  if (arrow == std::string_view::npos) {
    Term result{{}, 0};
    for (const auto& [letter, count] : times) {
      if (count == 1) result.letters.push_back(letter);
    }
    all.result = spelled_out(result, most);
    return all;
  }
  const Term result = read_term(equation, equation.substr(arrow + 2));
  for (const int letter : result.letters) {
    PEAL_CHECK(times.contains(letter), "einsum \"", equation, "\": the result's '",
               static_cast<char>(letter), "' is of no operand");
    PEAL_CHECK(std::count(result.letters.begin(), result.letters.end(), letter) == 1, "einsum \"",
               equation, "\": '", static_cast<char>(letter), "' twice in the result");
  }
  all.result = spelled_out(result, most);
  return all;
}

// One size for each label, or 1.
void check_sizes(std::string_view equation, const std::vector<Labelled>& operands) {
  std::map<int, std::int64_t> sizes;
  for (const Labelled& operand : operands) {
    for (std::size_t i = 0; i < operand.labels.size(); ++i) {
      const std::int64_t size = operand.x.size(static_cast<int>(i));
      std::int64_t& known = sizes.try_emplace(operand.labels[i], size).first->second;
      if (known == 1) known = size;
      const int label = operand.labels[i];
      PEAL_CHECK(size == known || size == 1, "einsum \"", equation, "\": ",
                 label >= unnamed ? std::string("a dimension of '...'")
                                  : concat("'", static_cast<char>(label), "'"),
                 " has the sizes ", known, " and ", size);
    }
  }
}

}  // namespace

Tensor einsum(std::string_view equation, const Tensors& operands) {
  const OpName op("einsum");
  TraceSpan span("einsum");
  PEAL_CHECK(!operands.empty(), "einsum \"", equation, "\": expected operands");
  // Products are matmul's, and so is what they are computed in.
  if (operands.size() > 1 &&
      std::any_of(operands.begin(), operands.end(), [](const Tensor& x) { return lowers(x); })) {
    Tensors low;
    for (const Tensor& x : operands) low.push_back(lowered(x));
    return einsum(equation, low);
  }
  for (const Tensor& x : operands) check_alike("einsum", operands[0], x);
  const Equation names = read_equation(equation, operands);
  std::vector<Labelled> left;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    left.push_back(diagonals_of("einsum", {operands[i], names.operands[i]}));
  }
  check_sizes(equation, left);
  Labelled product = left[0];
  for (std::size_t i = 1; i < left.size(); ++i) {
    Labels kept = names.result;
    for (std::size_t j = i + 1; j < left.size(); ++j) {
      kept.insert(kept.end(), left[j].labels.begin(), left[j].labels.end());
    }
    product = contracted(product, left[i], kept);
  }
  return ordered(summed_but(product, names.result), names.result);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_a,
                 const std::vector<int>& dims_b) {
  const OpName op("tensordot");
  if (lowers(a, b)) return tensordot(lowered(a), lowered(b), dims_a, dims_b);
  TraceSpan span("tensordot");
  check_alike("tensordot", a, b);
  PEAL_CHECK(dims_a.size() == dims_b.size(), "tensordot: ", dims_a.size(), " dimensions of ",
             a.shape(), " meet ", dims_b.size(), " of ", b.shape());
  Labelled left{a, {}}, right{b, {}};
  for (int i = 0; i < a.dim(); ++i) left.labels.push_back(i);
  for (int i = 0; i < b.dim(); ++i) right.labels.push_back(a.dim() + i);
  Labels kept = left.labels;
  kept.insert(kept.end(), right.labels.begin(), right.labels.end());
  for (std::size_t i = 0; i < dims_a.size(); ++i) {
    const int of_a = checked_dim("tensordot", a, dims_a[i]);
    const int of_b = checked_dim("tensordot", b, dims_b[i]);
    PEAL_CHECK(a.size(of_a) == b.size(of_b) || a.size(of_a) == 1 || b.size(of_b) == 1,
               "tensordot: dimension ", dims_a[i], " of ", a.shape(), " meets dimension ",
               dims_b[i], " of ", b.shape());
    int& label = right.labels[static_cast<std::size_t>(of_b)];
    PEAL_CHECK(std::erase(kept, of_a) == 1 && std::erase(kept, label) == 1, "tensordot: dimension ",
               dims_a[i], " of ", a.shape(), " or ", dims_b[i], " of ", b.shape(),
               " is named twice");
    label = of_a;
  }
  return contracted(left, right, kept).x;
}

Tensor tensordot(const Tensor& a, const Tensor& b, int dims) {
  PEAL_CHECK(dims >= 0 && dims <= a.dim() && dims <= b.dim(), "tensordot: ", dims,
             " dimensions of shapes ", a.shape(), " and ", b.shape());
  std::vector<int> of_a, of_b;
  for (int i = 0; i < dims; ++i) {
    of_a.push_back(a.dim() - dims + i);
    of_b.push_back(i);
  }
  return tensordot(a, b, of_a, of_b);
}

}  // namespace peal
