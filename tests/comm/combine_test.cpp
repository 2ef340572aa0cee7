// SPDX-License-Identifier: Apache-2.0
// combine() against its definition, element by element in plain C++, at every vector level that
// this CPU has: types, reductions, counts round the vectors' and the lines' lengths, sources,
// targets, places in memory.
#include <peal/autograd/core/cpu_level.h>
#include <peal/comm/engine/streamed_copies.h>
#include <peal/comm/reduce/cpu/combine.h>
#include <peal/comm/reduce/cpu/reduce.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::comm;
using cpu::Level;

namespace {

std::vector<Level> levels() {
  std::vector<Level> out;
  for (const Level level : {Level::baseline, Level::avx2, Level::avx512}) {
    if (level <= cpu::best_level()) out.push_back(level);
  }
  return out;
}

constexpr DType all_dtypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,   DType::i32,
                                DType::i64, DType::u8,  DType::i8,  DType::boolean};
constexpr ReduceOp all_ops[] = {ReduceOp::sum, ReduceOp::avg,  ReduceOp::prod,
                                ReduceOp::min, ReduceOp::max,  ReduceOp::band,
                                ReduceOp::bor, ReduceOp::bxor, ReduceOp::premul_sum};

// What sums of T are held in until the store.
template <class T>
using Held = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <class H>
H both(ReduceOp op, H a, H b) {
  if constexpr (std::is_same_v<H, bool>) {
    switch (op) {
      case ReduceOp::bxor:
        return a != b;
      case ReduceOp::sum:
      case ReduceOp::max:
      case ReduceOp::bor:
        return a || b;
      default:
        return a && b;
    }
  } else if constexpr (std::is_floating_point_v<H>) {
    const bool nan = std::isnan(a) || std::isnan(b), same = a == b;
    switch (op) {
      case ReduceOp::prod:
        return a * b;
      case ReduceOp::min:
        if (nan) return std::numeric_limits<H>::quiet_NaN();
        if (same) return std::signbit(a) ? a : b;
        return std::fmin(a, b);
      case ReduceOp::max:
        if (nan) return std::numeric_limits<H>::quiet_NaN();
        if (same) return std::signbit(a) ? b : a;
        return std::fmax(a, b);
      default:
        return a + b;
    }
  } else {
    // In the widest unsigned type, whose lower bits are those of every narrower one.
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    switch (op) {
      case ReduceOp::prod:
        return static_cast<H>(x * y);
      case ReduceOp::min:
        return std::min(a, b);
      case ReduceOp::max:
        return std::max(a, b);
      case ReduceOp::band:
        return static_cast<H>(x & y);
      case ReduceOp::bor:
        return static_cast<H>(x | y);
      case ReduceOp::bxor:
        return static_cast<H>(x ^ y);
      default:
        return static_cast<H>(x + y);
    }
  }
}

using Memory = std::vector<std::byte>;

template <class T>
T element(const std::byte* from, std::int64_t i) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return std::bit_cast<T>(bytes);
}

template <class H>
H divided(H sum, std::int64_t divisor) {
  if constexpr (std::is_floating_point_v<H>) return sum / static_cast<H>(divisor);
  return static_cast<H>(static_cast<std::int64_t>(sum) / divisor);
}

// Of sources that begin at `from`, by the definition.
template <class T>
Memory expected(ReduceOp op, std::span<const std::byte* const> from, std::int64_t count,
                std::int64_t divisor = 1) {
  Memory out(static_cast<std::size_t>(count) * sizeof(T));
  for (std::int64_t i = 0; i < count; ++i) {
    auto sum = static_cast<Held<T>>(element<T>(from[0], i));
    for (std::size_t s = 1; s < from.size(); ++s) {
      sum = both<Held<T>>(op, sum, static_cast<Held<T>>(element<T>(from[s], i)));
    }
    if (divisor != 1) sum = divided(sum, divisor);
    const bool copied = from.size() == 1 && divisor == 1;
    const T result = copied ? element<T>(from[0], i) : static_cast<T>(sum);
    std::memcpy(out.data() + static_cast<std::size_t>(i) * sizeof(T), &result, sizeof(T));
  }
  return out;
}

// The same bits; of NaN, which operand's payload a sum keeps is nobody's promise.
template <class T>
bool same(const std::byte* a, const std::byte* b, std::int64_t count) {
  if (count == 0 || std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(T)) == 0)
    return true;
  if constexpr (std::is_integral_v<T>) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    const T x = element<T>(a, i), y = element<T>(b, i);
    if (std::memcmp(&x, &y, sizeof(T)) == 0) continue;
    if (!std::isnan(static_cast<Held<T>>(x)) || !std::isnan(static_cast<Held<T>>(y))) return false;
  }
  return true;
}

// Any bits: all kinds of floats, a NaN now and then. bools are 0 or 1.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n));
  }
  template <class T>
  void fill(std::byte* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      T value = one<T>();
      std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
    }
  }

 private:
  template <class T>
  T one() {
    const std::uint64_t word = next(), kind = next() % 16;
    if constexpr (std::is_same_v<T, bool>) {
      return (word & 1) != 0;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(word);
    } else {
      using H = Held<T>;
      const H special[] = {H(0),
                           -H(0),
                           H(1),
                           H(-1),
                           std::numeric_limits<H>::infinity(),
                           -std::numeric_limits<H>::infinity(),
                           std::numeric_limits<H>::quiet_NaN()};
      if (kind == 0) return static_cast<T>(special[word % 7]);
      if (kind < 4) return static_cast<T>(static_cast<H>(static_cast<int>(word % 201) - 100));
      return element<T>(reinterpret_cast<const std::byte*>(&word), 0);
    }
  }
  std::uint64_t state_;
};

// One call. Arrays begin `skew` bytes after a line and further on; the bytes round the targets stay
// as they are.
struct Shape {
  std::int64_t count;
  int sources, targets;
  int in_place;  // so many targets are sources, from the last source on
  std::int64_t skew, skew_step;
  bool streaming;
  std::int64_t divisor = 1;  // of avg
};

template <class T>
std::string check(Level level, DType dtype, ReduceOp op, const Shape& shape, Dice& dice) {
  constexpr std::int64_t margin = 128;
  const std::int64_t bytes = shape.count * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t room = 2 * margin + 64 + bytes + 64;
  Memory memory(static_cast<std::size_t>(room * (shape.sources + shape.targets)));
  dice.fill<std::uint8_t>(memory.data(), static_cast<std::int64_t>(memory.size()));
  const auto place = [&](int k) {
    std::byte* begin = memory.data() + k * room + margin;
    begin += -reinterpret_cast<std::uintptr_t>(begin) % 64;
    return begin + (shape.skew + k * shape.skew_step) % 64;
  };
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> targets;
  for (int s = 0; s < shape.sources; ++s) {
    dice.fill<T>(place(s), shape.count);
    sources.push_back(place(s));
  }
  for (int t = 0; t < shape.targets; ++t) {
    targets.push_back(t < shape.in_place ? place(shape.sources - 1 - t) : place(shape.sources + t));
  }
  const Memory sum = expected<T>(op, sources, shape.count, shape.divisor);
  Memory whole = memory;
  for (std::byte* target : targets) {
    std::copy(sum.begin(), sum.end(), whole.begin() + (target - memory.data()));
  }
  combine(level, dtype, op, targets, sources, shape.count, shape.streaming, shape.divisor);
  std::string wrong;
  for (std::byte* target : targets) {
    if (!same<T>(target, sum.data(), shape.count)) wrong += "a target ";
    std::copy(sum.begin(), sum.end(), target);  // NaN of other payloads
  }
  if (memory != whole) wrong += "memory beside the targets";
  return wrong;
}

void check_all(Level level, DType dtype, ReduceOp op, const Shape& shape, Dice& dice) {
  const std::string wrong =
      visit(dtype, [&]<class T>() { return check<T>(level, dtype, op, shape, dice); });
  INFO("level ", static_cast<int>(level), ", ", name_of(dtype), " ", name(op), ", count ",
       shape.count, ", ", shape.sources, " sources, ", shape.targets, " targets, in place ",
       shape.in_place, ", skew ", shape.skew, " + k ", shape.skew_step, ", streaming ",
       shape.streaming, ", divided by ", shape.divisor);
  CHECK(wrong == "");
}

template <class F>
void for_each_reduction(const F& f) {
  for (const DType dtype : all_dtypes) {
    for (const ReduceOp op : all_ops) {
      if (has_reduction(dtype, op)) f(dtype, op);
    }
  }
}

}  // namespace

TEST_CASE("every reduction of every type is its definition, at every count") {
  for (const Level level : levels()) {
    Dice dice(1);
    for_each_reduction([&](DType dtype, ReduceOp op) {
      const auto size = static_cast<std::int64_t>(size_of(dtype));
      std::vector<std::int64_t> counts;
      for (std::int64_t count = 0; count <= 70; ++count) counts.push_back(count);
      for (const std::int64_t count : {127, 255, 256, 257, 1000, 1024, 4099})
        counts.push_back(count);
      for (const std::int64_t count : counts) {
        const int sources = 1 + static_cast<int>(dice.below(5));
        const int targets = 1 + static_cast<int>(dice.below(5));
        check_all(level, dtype, op,
                  {.count = count,
                   .sources = sources,
                   .targets = targets,
                   .in_place = static_cast<int>(dice.below(std::min(sources, targets) + 1)),
                   .skew = dice.below(64 / size) * size,
                   .skew_step = 0,
                   .streaming = dice.below(2) == 1,
                   .divisor = op == ReduceOp::avg ? 1 + dice.below(8) : 1},
                  dice);
      }
    });
  }
}

TEST_CASE("all numbers of sources and targets, alike and unlike in their lines, streaming or not") {
  for (const Level level : levels()) {
    Dice dice(2);
    for (const DType dtype : {DType::f32, DType::bf16, DType::i64, DType::u8}) {
      for (int sources = 1; sources <= 5; ++sources) {
        for (int targets = 0; targets <= 5; ++targets) {
          for (const std::int64_t skew : {0, 8, 3}) {  // 3: not even an element's alignment
            for (const std::int64_t step : {0, 4, 7}) {
              for (const std::int64_t count : {1, 5, 67, 3001}) {
                for (const bool streaming : {false, true}) {
                  const int in_place = (count + step) % 2 == 0 ? 0 : std::min(sources, targets);
                  for (const std::int64_t divisor : {1, 2, 3}) {
                    check_all(level, dtype, ReduceOp::avg,
                              {count, sources, targets, in_place, skew, step, streaming, divisor},
                              dice);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

// Each of the 65536 values beside each of these.
template <class T>
void check_every_value(Level level, DType dtype) {
  constexpr std::int64_t values = 65536;
  std::vector<T> every(values), beside(values), out(values);
  for (std::int64_t i = 0; i < values; ++i) {
    every[static_cast<std::size_t>(i)].bits = static_cast<std::uint16_t>(i);
  }
  const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float other :
       {0.0f, -0.0f, 1.0f, 3e-8f, -1.5e-5f, 0.333f, -65504.0f, 1e38f, infinity, -infinity}) {
    std::fill(beside.begin(), beside.end(), static_cast<T>(other));
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
      const std::byte* const sources[] = {bytes(every), bytes(beside), bytes(every)};
      std::byte* const target = bytes(out);
      combine(level, dtype, op, {&target, 1}, sources, values, false);
      const Memory sum = expected<T>(op, sources, values);
      std::int64_t wrong = 0, loud = 0;
      for (std::int64_t i = 0; i < values; ++i) {
        const T got = out[static_cast<std::size_t>(i)], wanted = element<T>(sum.data(), i);
        const float wide = got;
        if (std::isnan(wide)) {
          // The reference says NaN too, and this one is quiet.
          if (!std::isnan(static_cast<float>(wanted))) ++wrong;
          if ((got.bits & (std::is_same_v<T, Half> ? 0x200 : 0x40)) == 0) ++loud;
        } else if (got.bits != wanted.bits) {
          ++wrong;
        }
      }
      INFO(name_of(dtype), " ", name(op), " with ", other, " at level ", static_cast<int>(level));
      CHECK(wrong == 0);
      CHECK(loud == 0);
    }
  }
}

TEST_CASE("f16 and bf16 are rounded once, and NaN is quiet") {
  for (const Level level : levels()) {
    check_every_value<Half>(level, DType::f16);
    check_every_value<BFloat16>(level, DType::bf16);
    // 256 + 1 + 1 in bf16, of which the spacing there is 2: after each addition rounded, 256.
    const BFloat16 large(256.0f), one(1.0f);
    BFloat16 sum;
    const auto at = [](const BFloat16& x) { return reinterpret_cast<const std::byte*>(&x); };
    const std::byte* const sources[] = {at(large), at(one), at(one)};
    std::byte* const target = reinterpret_cast<std::byte*>(&sum);
    combine(level, DType::bf16, ReduceOp::sum, {&target, 1}, sources, 1, false);
    CHECK(static_cast<float>(sum) == 258.0f);
  }
}

TEST_CASE("levels agree bit by bit") {
  Dice dice(3);
  for_each_reduction([&](DType dtype, ReduceOp op) {
    visit(dtype, [&]<class T>() {
      constexpr std::int64_t count = 5003;
      std::array<Memory, 4> memory;
      std::vector<const std::byte*> sources;
      for (Memory& each : memory) {
        each.resize(count * sizeof(T));
        dice.fill<T>(each.data(), count);
        sources.push_back(each.data());
      }
      Memory first(count * sizeof(T));
      for (const Level level : levels()) {
        Memory out(count * sizeof(T));
        std::byte* const target = level == Level::baseline ? first.data() : out.data();
        combine(level, dtype, op, {&target, 1}, sources, count, false, op == ReduceOp::avg ? 3 : 1);
        INFO(name_of(dtype), " ", name(op), " at level ", static_cast<int>(level));
        CHECK(same<T>(target, first.data(), count));
      }
    });
  });
}

TEST_CASE("one source is copied as it is, signalling NaN and all") {
  const std::array<std::uint16_t, 40> from = [] {
    std::array<std::uint16_t, 40> bits{};
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(0x7c01 + i);
    return bits;
  }();
  for (const Level level : levels()) {
    std::array<std::uint16_t, 40> to{};
    const auto* const source = reinterpret_cast<const std::byte*>(from.data());
    auto* const target = reinterpret_cast<std::byte*>(to.data());
    combine(level, DType::f16, ReduceOp::min, {&target, 1}, {&source, 1}, 40, false);
    CHECK(to == from);
  }
}

TEST_CASE("a type has the reductions that has_reduction() says, and no others") {
  const std::byte source[16] = {};
  std::byte target[16] = {};
  const std::byte* const sources[] = {source, source};
  std::byte* const targets[] = {target};
  for (const DType dtype : all_dtypes) {
    for (const ReduceOp op : all_ops) {
      if (has_reduction(dtype, op)) {
        combine(dtype, op, targets, sources, 1, false);
      } else {
        CHECK_THROWS_AS(combine(dtype, op, targets, sources, 1, false), Error);
      }
    }
  }
  CHECK_THROWS_WITH_AS(reduce_cpu(DType::bf16, ReduceOp::sum, target, source, 1),
                       doctest::Contains("bf16 is reduced as f32"), Error);
}

TEST_CASE("a streaming copy is a copy, of any length, from anywhere to anywhere") {
  std::vector<std::byte> from(70'000), to(from.size()), want(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 % 251);
  for (const std::size_t bytes : {0, 1, 63, 1023, 1024, 4097, 65'536}) {
    for (const std::size_t first : {0, 1, 64, 67}) {
      for (const std::size_t second : {0, 3, 64}) {
        std::fill(to.begin(), to.end(), std::byte{255});
        want = to;
        copy_streaming(to.data() + first, from.data() + second, bytes);
        std::memcpy(want.data() + first, from.data() + second, bytes);
        REQUIRE(to == want);
      }
    }
  }
  copy_streaming(to.data(), to.data(), to.size());
  CHECK(to == want);
}
