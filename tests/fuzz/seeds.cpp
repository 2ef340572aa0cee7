// SPDX-License-Identifier: Apache-2.0
// Writes what the fuzzers start from: a few small good files of each format, and one of each kind
// of damage. Argument 1: the folder; each format gets a folder in it.
#include <peal/autograd/core/safetensors.h>
#include <peal/comm/transport/tcp/frame.h>
#include <peal/comm/transport/tcp/hello.h>
#include <peal/data/shards/tar_index.h>
#include <peal/tests/data/encode.h>
#include <zlib.h>

#include <cstdio>
#include <fstream>
#include <vector>

using namespace peal;
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<std::uint8_t>;

void write(const fs::path& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  PEAL_CHECK(file.flush(), "seeds: cannot write ", path.string());
}

Bytes gzip(const Bytes& plain) {
  z_stream z{};
  PEAL_CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
             "seeds: zlib does not start");
  Bytes packed(deflateBound(&z, plain.size()) + 64);
  z.next_in = const_cast<Bytef*>(plain.data());
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = packed.data();
  z.avail_out = static_cast<uInt>(packed.size());
  PEAL_CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END, "seeds: zlib does not finish");
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

void write_idx(const fs::path& folder) {
  fs::create_directories(folder);
  Bytes images{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 3};
  for (int i = 0; i < 24; ++i) images.push_back(static_cast<std::uint8_t>(i * 37));
  const Bytes labels{0, 0, 8, 1, 0, 0, 0, 5, 4, 9, 0, 1, 2};
  write(folder / "images", images);
  write(folder / "labels", labels);
  write(folder / "none", {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3});
  write(folder / "too_many", {0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 1, 7});
  write(folder / "images.gz", gzip(images));
  write(folder / "labels.gz", gzip(labels));
  Bytes members = gzip(Bytes(images.begin(), images.begin() + 9));
  const Bytes second = gzip(Bytes(images.begin() + 9, images.end()));
  members.insert(members.end(), second.begin(), second.end());
  write(folder / "members.gz", members);
  members.resize(members.size() - 9);
  write(folder / "cut.gz", members);
}

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

void write_csv(const fs::path& folder) {
  fs::create_directories(folder);
  write(folder / "plain", bytes_of("a,b\n1,2\nx,3\n"));
  write(folder / "quoted", bytes_of("a,b\r\n\"x,\"\"y\"\"\",\"1\r\n2\"\r\n\r\n,NA\r"));
  write(folder / "other", bytes_of("w; 1\nv; \"2\"\n"));
  write(folder / "mark", bytes_of("\xef\xbb\xbf"
                                  "a\n1e3\n\n-1"));
  write(folder / "ragged", bytes_of("a,b\n1\n"));
  write(folder / "open", bytes_of("a\n\"1\n"));
  write(folder / "plain.gz", gzip(bytes_of("a,b\n1,2\n,3\n")));
}

void write_text(const fs::path& folder) {
  fs::create_directories(folder);
  write(folder / "words",
        bytes_of("Such a GREAT film!!!! so so so good, I'd say 10/10 &amp; more"));
  write(folder / "marks", bytes_of("one<br />two\\n  3 @.@ 5 \xc3\xa9 \xf0\x9f\x98\x80 \xff x"));
  write(folder / "merges", bytes_of("#version: 0.2\na b\n\xc4\xa0 ab\nab c\n"));
  write(folder / "twice", bytes_of("a b\nb c\na bc\nab c\n"));
}

void write_tokens(const fs::path& folder) {
  fs::create_directories(folder);
  const auto with = [](char bytes, char count, const Bytes& tokens) {
    Bytes file = bytes_of("PEALTOK1");
    file.insert(file.end(), {static_cast<std::uint8_t>(bytes), 0, 0, 0, 9, 0, 0, 0,
                             static_cast<std::uint8_t>(count), 0, 0, 0, 0, 0, 0, 0});
    file.insert(file.end(), tokens.begin(), tokens.end());
    return file;
  };
  write(folder / "short", with(2, 5, {1, 0, 2, 0, 9, 0, 0, 0, 4, 0}));
  write(folder / "long", with(4, 2, {1, 0, 0, 0, 2, 0, 0, 0}));
  write(folder / "large", with(2, 1, {77, 1}));
  write(folder / "cut", with(2, 3, {1, 0, 2}));
}

// What a header looks like to the fuzzer: after a byte that says how many bytes of elements follow.
Bytes header(std::uint8_t elements, const std::string& json) {
  Bytes bytes{elements};
  bytes.insert(bytes.end(), json.begin(), json.end());
  return bytes;
}

void write_safetensors(const fs::path& folder) {
  fs::create_directories(folder);
  save_safetensors(folder / "small", {{"b", Tensor::from<std::uint8_t>({7, 8}, {2})},
                                      {"a", Tensor::from<float>({1.0f, -2.0f}, {2})}});
  save_safetensors(folder / "all",
                   {{"scalar", Tensor::scalar(0.1)},
                    {"none", Tensor::zeros({0, 5})},
                    {"bool", Tensor::zeros({2, 1}, DType::boolean)},
                    {"i64", Tensor::from<std::int64_t>({-1}, {1, 1, 1})}},
                   {{"epoch", "3"}, {"sch\xc3\xb6n", "\"ja\"\n"}});
  save_safetensors(folder / "empty", {});
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  write(folder / "header", header(8, "{" + a + "}"));
  write(folder / "twice", header(8, "{" + a + "," + a + "}"));
  write(folder / "overlap",
        header(12, "{" + a + R"(,"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})"));
  write(folder / "large", header(8, R"({"a":{"dtype":"BF16","shape":[4294967296,4294967296],)"
                                    R"("data_offsets":[0,8]}})"));
  write(folder / "metadata", header(0, R"({"__metadata__":{"format":"pt","n":3}})"));
  write(folder / "nested", header(0, std::string(200, '[')));
}

void write_images(const fs::path& folder) {
  fs::create_directories(folder);
  const data::Image image = testing::drawn_image(21, 35);
  write(folder / "small.jpg", testing::jpeg_of(testing::drawn_image(8, 8), {.quality = 30}));
  for (const bool progressive : {false, true}) {
    const std::string suffix = progressive ? "p.jpg" : ".jpg";
    write(folder / ("420" + suffix), testing::jpeg_of(image, {40, 2, 2, progressive, false}));
    write(folder / ("422" + suffix), testing::jpeg_of(image, {40, 2, 1, progressive, false}));
    write(folder / ("444" + suffix), testing::jpeg_of(image, {40, 1, 1, progressive, false}));
    write(folder / ("grey" + suffix), testing::jpeg_of(image, {40, 1, 1, progressive, true}));
    write(folder / (progressive ? "interlaced.png" : "rows.png"),
          testing::png_of(testing::drawn_image(9, 7), progressive));
    write(folder / ("411" + suffix), testing::jpeg_of(image, {40, 4, 1, progressive}));
    write(folder / ("cmyk" + suffix),
          testing::jpeg_of(image, {40, 1, 1, progressive, false, JCS_CMYK}));
    write(folder / ("ycck" + suffix),
          testing::jpeg_of(image, {40, 1, 1, progressive, false, JCS_YCCK}));
  }
  write(folder / "scans.jpg",
        testing::jpeg_of(testing::drawn_image(8, 8), {.across = 1, .down = 1, .many_scans = true}));
  for (const int depth : {1, 4, 16}) {
    const int other = depth == 16 ? PNG_COLOR_TYPE_RGB_ALPHA : PNG_COLOR_TYPE_PALETTE;
    const bool transparent = depth < 16;
    write(folder / ("grey" + std::to_string(depth) + ".png"),
          testing::png_of(testing::drawn_image(9, 7), {PNG_COLOR_TYPE_GRAY, depth, true, true}));
    write(folder / ("other" + std::to_string(depth) + ".png"),
          testing::png_of(testing::drawn_image(9, 7), {other, depth, false, transparent}));
  }
}

void write_tar(const fs::path& folder) {
  fs::create_directories(folder);
  Bytes archive = testing::tar_entry("a/1.jpg", "one");
  const auto add = [&](const Bytes& entry) {
    archive.insert(archive.end(), entry.begin(), entry.end());
  };
  write(folder / "one", archive);
  add(testing::tar_entry("././@LongLink", std::string(120, 'd'), 'L'));
  add(testing::tar_entry("d", "two"));
  add(testing::tar_entry("pax", "16 path=b/3.png\n", 'x'));
  add(testing::tar_entry("3.png", "three", '0', "some/where"));
  add(testing::tar_entry("e/", "", '5'));
  add(testing::tar_entry("e/4.png", "", '1', "", "a/1.jpg"));
  archive.resize(archive.size() + 1024);
  write(folder / "several", archive);
  write(folder / "several.gz", gzip(archive));
  write(folder / "empty", Bytes(1024));
  Bytes shard = testing::tar_entry("set/1.jpg", "one");
  for (const char* name : {"set/1.cls", "__meta__", "set/2.seg.PNG", "set/2.cls"}) {
    const Bytes entry = testing::tar_entry(name, "7");
    shard.insert(shard.end(), entry.begin(), entry.end());
  }
  shard.resize(shard.size() + 1024);
  write(folder / "shard", shard);
  const std::string index = data::index_tar(data::file_bytes(folder / "shard"), "shard").to_bytes();
  write(folder / "index", bytes_of(index));
}

void write_json_lines(const fs::path& folder) {
  fs::create_directories(folder);
  const std::string lines =
      "{\"n\": 1, \"t\": \"a \\u00fc\"}\n\n{\"v\": [[1, 2.5], [true, -3]], \"w\": [\"a\"]}\r\n"
      "{\"m\": {\"in\": {\"k\": 7}}, \"z\": null}";
  write(folder / "lines", bytes_of(lines));
  write(folder / "lines.gz", gzip(bytes_of(lines)));
  write(folder / "mark", bytes_of("\xef\xbb\xbf{}\n \n[2]\n{\"n\": 1e400}\n{\"n\": "));
  write(folder / "nested", bytes_of("{\"x\": " + std::string(300, '[') + "1"));
  write(folder / "index", {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                           0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0});
}

// The last bytes of tcp_fuzz.cpp's inputs.
constexpr std::uint8_t half = 128, one_receive_late = half | 1;

// What rank 1 says to rank 0, which has posted what tcp_fuzz.cpp says, in two halves.
void write_tcp(const fs::path& folder) {
  using comm::TcpFrame;
  using Kind = TcpFrame::Kind;
  fs::create_directories(folder);
  const auto write_frames = [&](const char* name, std::initializer_list<TcpFrame> frames,
                                std::uint8_t how = half) {
    Bytes bytes;
    std::uint32_t number = 0;
    for (TcpFrame frame : frames) {
      frame.frame = number++;
      for (const std::byte byte : encode(frame)) bytes.push_back(static_cast<std::uint8_t>(byte));
      bytes.resize(bytes.size() + frame.content(), 'x');
    }
    bytes.push_back(how);
    write(folder / name, bytes);
  };
  const auto of = [](Kind kind, std::uint64_t number, std::uint64_t bytes) {
    return TcpFrame{.kind = kind,
                    .parcel = {.group = 5,
                               .channel = {.sequence = 7, .signature = 9},
                               .number = number,
                               .bytes = bytes,
                               .from = 1}};
  };
  write_frames("whole", {of(Kind::whole, 0, 5), of(Kind::whole, 1, 1000)});
  write_frames("parts", {of(Kind::whole, 0, 5), of(Kind::offer, 1, 1000), of(Kind::part, 1, 600),
                         of(Kind::part, 1, 400), of(Kind::end, 1, 0), of(Kind::accept, 0, 0)});
  write_frames("early", {of(Kind::whole, 0, 5), of(Kind::offer, 1, 1000), of(Kind::part, 1, 3000)},
               one_receive_late);
  write_frames("late", {of(Kind::whole, 0, 5), of(Kind::whole, 1, 1000)}, one_receive_late);
  write_frames("other", {of(Kind::whole, 3, 7), of(Kind::offer, 4, 5), of(Kind::met, 0, 0)});
  write_frames("failure", {of(Kind::failure, 0, 9), of(Kind::bye, 0, 0)});
  const comm::TcpHello hello{.from = 1, .to = 0, .world = 2, .nonce = std::string(32, 'a')};
  Bytes said = bytes_of(encode(hello, "a key"));
  said.push_back(half);
  write(folder / "hello", said);
}

}  // namespace

int main(int argc, char** argv) try {
  PEAL_CHECK(argc == 2, "usage: seeds FOLDER");
  write_tokens(fs::path(argv[1]) / "tokens");
  write_text(fs::path(argv[1]) / "text");
  write_csv(fs::path(argv[1]) / "csv");
  write_idx(fs::path(argv[1]) / "idx");
  write_images(fs::path(argv[1]) / "image");
  write_safetensors(fs::path(argv[1]) / "safetensors");
  write_tar(fs::path(argv[1]) / "tar");
  write_tcp(fs::path(argv[1]) / "tcp");
  write_json_lines(fs::path(argv[1]) / "jsonl");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
