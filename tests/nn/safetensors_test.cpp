// SPDX-License-Identifier: Apache-2.0
// safetensors: what is written comes back and is laid out as the format says; every way in which a
// file can be wrong is an error that says so; a failed save leaves the old file.
#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/safetensors_checksum.h>
#include <peal/autograd/core/safetensors_file.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <cstring>
#include <limits>
#include <random>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace peal;
using namespace peal::testing;

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes file_of(const std::string& header, std::size_t data) {
  Bytes file(8 + header.size() + data);
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

std::string error_of_file(const Bytes& file) {
  return error_of([&] { parse_safetensors(file, "F"); });
}

// An F32 tensor "a" of shape [2] whose data_offsets are given.
std::string entry(const std::string& name, int begin, int end, const std::string& dtype = "F32",
                  const std::string& shape = "[2]") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

template <class T>
T number(int i) {
  if constexpr (std::is_same_v<T, bool>) return i % 3 == 0;
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(i) - 2.5f);
  } else {
    return static_cast<T>(i * 7 - 3);
  }
}

NamedTensors one_of_each() {
  NamedTensors tensors;
  int n = 1;
  for (const DType dtype : {DType::u8, DType::f32, DType::boolean, DType::f64, DType::f16,
                            DType::bf16, DType::i32, DType::i64, DType::i8}) {
    Tensor tensor = Tensor::empty({n, 3}, dtype);
    visit(dtype, [&]<class T>() {
      for (int i = 0; i < n * 3; ++i) tensor.data<T>()[i] = number<T>(i);
    });
    tensors.emplace_back(concat("t.", dtype), tensor);
    ++n;
  }
  tensors.emplace_back("scalar", Tensor::scalar(0.1));
  tensors.emplace_back("nothing", Tensor::zeros({0, 5}));
  return tensors;
}

void check_equal(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO(a[i].first);
    CHECK(a[i].first == b[i].first);
    CHECK(a[i].second.dtype() == b[i].second.dtype());
    REQUIRE(a[i].second.shape() == b[i].second.shape());
    const std::size_t bytes = a[i].second.view().bytes();
    CHECK((bytes == 0 || std::memcmp(a[i].second.raw(), b[i].second.raw(), bytes) == 0));
  }
}

}  // namespace

TEST_CASE("what was saved comes back: types, order, text") {
  const Folder folder;
  const auto path = folder.path / "all.safetensors";
  const Metadata metadata{{"epoch", "3"}, {"schön", "ja \"und\" nein\n"}};
  save_safetensors(path, one_of_each(), metadata);
  CHECK(folder.entries() == 1);  // no temporary file stays
  const Safetensors loaded = load_safetensors(path);
  check_equal(loaded.tensors, one_of_each());
  CHECK(loaded.metadata == metadata);

  save_safetensors(path, {});
  CHECK(load_safetensors(path).tensors.empty());
  CHECK(load_safetensors(path).metadata.empty());
}

TEST_CASE("the file is laid out as the format says") {
  const Folder folder;
  const auto path = folder.path / "small.safetensors";
  save_safetensors(path, {{"b", Tensor::from<std::uint8_t>({7, 8}, {2})},
                          {"a", Tensor::from<float>({1.0f, -2.0f}, {2})}});
  const std::string file = content_of(path);
  const std::string header =
      "{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[8,10]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  std::uint64_t length;
  std::memcpy(&length, file.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(length - header.size() < 8);
  CHECK(file.substr(8, header.size()) == header);
  CHECK(file.substr(8 + header.size(), length - header.size()).find_first_not_of(' ') ==
        std::string::npos);
  CHECK(file.substr(8 + length) == std::string("\0\0\x80\x3f\0\0\0\xc0\x07\x08", 10));
}

TEST_CASE("a good file by hand, in any order of offsets") {
  Bytes file = file_of("{" + entry("b", 8, 16) + "," + entry("a", 0, 8) + "," +
                           entry("empty", 8, 8, "I64", "[0,4]") + "}  ",
                       16);
  const float two = 2;
  std::memcpy(file.data() + file.size() - 16, &two, 4);
  const Safetensors loaded = parse_safetensors(file, "F");
  REQUIRE(loaded.tensors.size() == 3);
  CHECK(loaded.tensors[0].first == "b");
  CHECK(loaded.tensors[1].second.to_vector<float>() == std::vector<float>{2, 0});
}

TEST_CASE("each malformed file is an error that names file, tensor, expected and got") {
  const auto expect = [](const Bytes& file, const std::string& part) {
    const std::string message = error_of_file(file);
    check_has(message, "safetensors F: ");
    check_has(message, part);
  };
  const auto header = [&](const std::string& text, std::size_t data, const std::string& part) {
    INFO("header: ", text);
    expect(file_of(text, data), part);
  };
  expect({}, "expected at least 8 bytes, got 0");
  expect(Bytes(7), "expected at least 8 bytes, got 7");
  expect(Bytes(8), "not JSON");
  expect({9, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, "a header of 9 bytes in a file of 10");
  expect(Bytes(100, 0xff), "a header of 18446744073709551615 bytes in a file of 100");
  header("not json", 0, "not JSON");
  header("{\"a\":", 0, "not JSON");
  header("[]", 0, "not a JSON object but array");
  header(std::string(100000, '['), 0, "not JSON");
  header("{\"a\xff\":1}", 0, "not JSON");

  header("{\"a\":3}", 0, "tensor 'a': expected an object of dtype, shape and data_offsets");
  header("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "tensor 'a': expected an object");
  header("{" + entry("a", 0, 8, "F8_E4M3") + "}", 8, "got \"F8_E4M3\"");
  header("{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "got 7");
  header("{" + entry("a", 0, 8, "F32", "2") + "}", 8, "expected a shape of at most 8 sizes, got 2");
  header("{" + entry("a", 0, 4, "F32", "[1,1,1,1,1,1,1,1,1]") + "}", 4, "at most 8 sizes");
  header("{" + entry("a", 0, 8, "F32", "[-2]") + "}", 8, "sizes are whole numbers");
  header("{" + entry("a", 0, 8, "F32", "[2.0]") + "}", 8, "sizes are whole numbers");
  header("{" + entry("a", 0, 8, "F32", "[[2]]") + "}", 8, "shape a nested array: sizes are whole");
  header("{" + entry("a", 0, 8, "F32", "[4294967296,4294967296]") + "}", 8,
         "larger than any memory");
  header("{" + entry("a", 0, 8, "U8", "[18446744073709551615]") + "}", 8, "larger than any memory");
  header("{" + entry("a", 0, 8, "F32", "[4611686018427387904]") + "}", 8, "larger than any memory");
  header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
         "expected data_offsets [begin, end], got [0]");
  header("{" + entry("a", -8, 0) + "}", 8, "expected data_offsets [begin, end], got [-8,0]");

  header("{" + entry("a", 0, 8) + "}", 7, "data_offsets [0, 8] are outside the file's 7 bytes");
  header("{" + entry("a", 8, 0) + "}", 8, "data_offsets [8, 0] are outside");
  header("{" + entry("a", 0, 8, "F32", "[3]") + "}", 8, "f32 [3] takes 12 bytes");
  header("{" + entry("a", 0, 8, "F64") + "}", 8, "f64 [2] takes 16 bytes");
  header("{" + entry("a", 0, 8) + "," + entry("b", 4, 12) + "}", 12,
         "tensor 'b': starts at 4, inside tensor 'a', which ends at 8: overlapping offsets");
  header("{" + entry("a", 0, 8) + "," + entry("b", 0, 8) + "}", 8, "overlapping offsets");
  header("{" + entry("a", 4, 12) + "}", 12, "starts at 4, but the header ends at 0: 4 bytes");
  header("{" + entry("a", 0, 8) + "," + entry("b", 9, 17) + "}", 17,
         "tensor 'b': starts at 9, but tensor 'a' ends at 8: 1 bytes belong to no tensor");
  header("{" + entry("a", 0, 8) + "}", 9, "1 bytes after tensor 'a' belong to no tensor");
  header("{" + entry("a", 0, 8) + "," + entry("a", 0, 8) + "}", 8, "tensor 'a' is there twice");
  header("{\"__metadata__\":3}", 0, "__metadata__: expected an object of texts, got number");
  header("{\"__metadata__\":{\"k\":3}}", 0, "__metadata__: 'k': expected a text, got number");

  Bytes bools = file_of("{" + entry("a", 0, 2, "BOOL") + "}", 2);
  bools.back() = 2;
  expect(bools, "element 1 of a BOOL: expected 0 or 1, got 2");
}

TEST_CASE("random damage is read or refused, never worse") {
  const Folder folder;
  save_safetensors(folder.path / "f", one_of_each(), {{"k", "v"}});
  const std::string good = content_of(folder.path / "f");
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    Bytes file(good.begin(), good.end());
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) file[random() % file.size()] = random() & 0xff;
    if (random() % 4 == 0) file.resize(random() % file.size());
    refused += error_of_file(file) != "nothing";
  }
  CHECK(refused > 1000);
  CHECK(refused < 5000);  // damage to the elements alone cannot be seen
}

TEST_CASE("with a checksum each bit that is another one, and each byte less, is an error") {
  const Folder folder;
  const auto path = folder.path / "f";
  const NamedTensors tensors{{"b", Tensor::from<std::uint8_t>({7, 8}, {2})},
                             {"a", Tensor::from<float>({1.0f, -2.0f}, {2})}};
  const Metadata asked{{std::string(checksum_key), ""}, {"epoch", "3"}};
  save_safetensors(path, tensors, asked);
  const Safetensors loaded = load_safetensors(path);
  check_equal(loaded.tensors, tensors);
  CHECK(loaded.metadata == Metadata{{"epoch", "3"}});
  const std::string sum = loaded.checksum;
  CHECK(sum.size() == 14);
  CHECK(sum.starts_with("crc32:"));
  const std::string good = content_of(path);
  CHECK(contains(good, sum));

  const std::size_t name = good.find(checksum_key);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes file(good.begin(), good.end());
    file[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    INFO("bit ", bit);
    const bool in_name = bit / 8 >= name && bit / 8 < name + checksum_key.size();
    // Without that name it is a file that has none, and all the rest of it is right.
    CHECK((error_of_file(file).starts_with("safetensors F: ") || in_name));
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO("size ", size);
    check_has(error_of_file({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}),
              "copy it again or name another");
  }
  Bytes file(good.begin(), good.end());
  file[file.size() - 3] ^= 4;  // of a float
  check_has(error_of_file(file),
            "safetensors F: expected the checksum " + sum + ", which it says, got crc32:");
  check_has(error_of_file(file), "damaged, or was changed after it was saved; copy it again or");

  save_safetensors(path, tensors, {{"peal.checksum\":\"crc32:01234567\"", ""}});  // a mean name
  CHECK(load_safetensors(path).checksum.empty());
  check_equal(load_safetensors(path).tensors, tensors);
  check_has(error_of_file(file_of("{\"__metadata__\":{\"peal.checksum\":\"crc32:12\"}}", 0)),
            "__metadata__: 'peal.checksum': expected crc32: and 8 digits, got 'crc32:12'");
  // Of a program that has written the header anew, and kept the metadata.
  check_has(
      error_of_file(file_of("{\"__metadata__\": {\"peal.checksum\": \"crc32:0a1b2c3d\"}}", 0)),
      "it has the checksum crc32:0a1b2c3d, and a header that peal has not written: it was "
      "changed after it was saved");
}

TEST_CASE("a file that is not there, and a folder") {
  const Folder folder;
  check_has(error_of([&] { load_safetensors(folder.path / "none"); }),
            "none: cannot open: No such");
  check_has(error_of([&] { load_safetensors(folder.path); }), "cannot read: it is no regular file");
  std::filesystem::create_symlink("loop", folder.path / "loop");  // also for root
  CHECK_THROWS_AS(load_safetensors(folder.path / "loop"), UnreadableFile);
  check_has(error_of([&] { load_safetensors(folder.path / "loop"); }),
            "loop: cannot open: Too many");
  check_has(error_of([&] { save_safetensors(folder.path / "no" / "f", {}); }),
            "opening a temporary file beside it failed after 0 bytes: No such file");
  check_has(error_of([&] { save_safetensors(folder.path, {}); }), "not a regular file");
}

TEST_CASE("what cannot be saved is refused before anything is written") {
  const Folder folder;
  const Tensor t = Tensor::zeros({2});
  const auto error = [&](const NamedTensors& tensors, const Metadata& metadata = {}) {
    return error_of([&] { save_safetensors(folder.path / "f", tensors, metadata); });
  };
  check_has(error({{"a", t}, {"a", t}}), "tensor 'a' is there twice");
  check_has(error({{"__metadata__", t}}), "the format's own name");
  check_has(error({{"a", Tensor()}}), "tensor 'a' has no value");
  check_has(error({{"a", t}}, {{"k", "\xff"}}), "not UTF-8");
  CHECK(folder.entries() == 0);
}

TEST_CASE("a write that fails leaves the old file whole and no other") {
  const Folder folder;
  const auto path = folder.path / "f";
  save_safetensors(path, one_of_each());
  const std::string before = content_of(path);
  const NamedTensors large{{"large", Tensor::zeros({1 << 16})}};

  // A limit on the size of files stands for a full disk: write() fails in the middle.
  const auto old_action = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{100000, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string message = error_of([&] { save_safetensors(path, large); });
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  ::signal(SIGXFSZ, old_action);

  check_has(message, "writing failed after 100000 bytes: File too large");
  check_has(message, path.string());
  CHECK(content_of(path) == before);
  CHECK(folder.entries() == 1);
  save_safetensors(path, large);
  CHECK(load_safetensors(path).tensors[0].first == "large");
}

TEST_CASE("a save through a link replaces what it points to") {
  const Folder folder;
  save_safetensors(folder.path / "real", {});
  std::filesystem::create_symlink("real", folder.path / "link");
  save_safetensors(folder.path / "link", one_of_each());
  CHECK(std::filesystem::is_symlink(folder.path / "link"));
  check_equal(load_safetensors(folder.path / "real").tensors, one_of_each());
}

TEST_CASE("a file is read in parts, and its checksum by itself") {
  const Folder folder;
  const auto path = folder.path / "parts";
  std::vector<std::int64_t> values(300'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i);
  save_safetensors(path,
                   {{"u", Tensor::from(std::vector<std::uint8_t>{1, 2, 3}, {3})},
                    {"x", Tensor::from(values, {3, 100'000})}},
                   {{"peal.checksum", ""}, {"epoch", "3"}});
  const SafetensorsFile file(path);
  CHECK(file.bytes() == std::filesystem::file_size(path));
  CHECK(file.checksum() == load_safetensors(path).checksum);
  CHECK(file.metadata().at("epoch") == "3");
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[1].name == "x");
  CHECK(file.tensors()[1].shape == Shape{3, 100'000});
  for (int twice = 0; twice < 2; ++twice) file.check();
  const Tensor some = Tensor::empty({3}, DType::i64, Device{});
  file.read("x", 99'999, some);
  CHECK(some.to_vector<std::int64_t>() == std::vector<std::int64_t>{99'999, 100'000, 100'001});
  const Tensor bytes = Tensor::empty({1}, DType::u8, Device{});
  file.read("u", 2, bytes);
  CHECK(bytes.to_vector<std::uint8_t>() == std::vector<std::uint8_t>{3});
  check_has(error_of([&] { file.read("x", 299'998, some); }), "asked for 3 elements of i64");
  check_has(error_of([&] { file.read("x", 0, bytes); }), "asked for 1 elements of u8");
  check_has(error_of([&] { file.read("y", 0, some); }), "it has no tensor 'y'");

  std::string content = content_of(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  std::ofstream(path, std::ios::binary) << content;
  const SafetensorsFile damaged(path);  // the header is whole
  check_has(error_of([&] { damaged.check(); }), "expected the checksum");
}
