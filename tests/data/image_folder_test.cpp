// SPDX-License-Identifier: Apache-2.0
// Folders and archives of images as data sets, with everything that can be wrong with them.
#include <doctest/doctest.h>
#include <peal/data/formats/tar.h>
#include <peal/data/images/image_folder.h>
#include <peal/data/images/random_transforms.h>
#include <peal/data/images/save_image.h>
#include <peal/data/loader.h>
#include <peal/tests/data/encode.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

using namespace peal;
using testing::check_has;
using testing::drawn_image;
using testing::error_of;
using testing::jpeg_of;
using testing::png_of;
using testing::tar_entry;
using testing::text_of;
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<std::uint8_t>;

struct Folder : testing::Folder {
  fs::path write(const std::string& name, const Bytes& bytes) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path / name;
  }
};

const data::ChannelNormalisation halves{{0.5f, 0.25f, 0.1f}, {0.5f, 0.2f, 0.3f}};

std::vector<std::string> names_of(const data::ImageFiles& set) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    names.push_back(fs::path(set.item(i).path).filename().string());
  }
  return names;
}

void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

}  // namespace

TEST_CASE("classes are the folders, sorted, and images are in the order of their names") {
  const Folder folder;
  folder.write("set/dog/2.png", png_of(drawn_image(4, 5, 1)));
  folder.write("set/dog/10.PNG", png_of(drawn_image(4, 5, 2)));
  folder.write("set/cat/b/1.png", png_of(drawn_image(4, 5, 3)));
  folder.write("set/cat/z.JPeG", jpeg_of(drawn_image(4, 5, 4)));
  folder.write("set/cat/notes.txt", {1, 2});
  folder.write("set/readme.png", {1, 2});
  const auto set = data::image_folder(folder.path / "set", {.normalisation = halves});
  CHECK(set->classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(names_of(*set) == std::vector<std::string>{"z.JPeG", "1.png", "10.PNG", "2.png"});
  const auto [x, y] = set->get(std::vector<std::int64_t>{3, 1});
  CHECK(x.shape() == Shape{2, 3, 4, 5});
  CHECK(y.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0});
  std::vector<float> expected;
  for (const unsigned seed : {1u, 3u}) {
    const data::Image image = drawn_image(4, 5, seed);
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t i = 0; i < 20; ++i) {
        const float scaled = static_cast<float>(image.pixels[3 * i + c]) / 255.0f;
        expected.push_back((scaled - halves.mean[c]) / halves.std[c]);
      }
    }
  }
  CHECK(x.to_vector<float>() == expected);
  CHECK(set->get({}).x.shape() == Shape{0, 3, 0, 0});

  const auto other = data::image_folder(folder.path / "set", {}, {"dog", "bird", "cat"});
  CHECK(other->item(0).label == 2);
  CHECK(other->item(2).label == 0);
  CHECK(error_of([&] {
          data::image_folder(folder.path / "set", {}, {"dog", "bird"});
        }) == concat("[data] ", (folder.path / "set").string(),
                     ": 'cat' is no class of the set: it knows dog, bird"));
}

TEST_CASE("tensors of images become a picture in a file") {
  const Folder folder;
  const fs::path path = folder.path / "grid.png";
  const Tensor images = Tensor::from<float>({0, 1, -3, 0.5f, 7, NAN}, {3, 1, 1, 2});
  data::save_image(images, path, {.nrow = 2, .padding = 1, .pad_value = 1});
  const data::Image picture = data::image_files(path)->image(0);
  CHECK(picture.size() == data::ImageSize{5, 7});
  std::vector<int> greys;
  for (std::size_t i = 0; i < picture.pixels.size(); i += 3) greys.push_back(picture.pixels[i]);
  CHECK(greys == std::vector<int>{255, 255, 255, 255, 255, 255, 255,  //
                                  255, 0,   255, 255, 0,   128, 255,  //
                                  255, 255, 255, 255, 255, 255, 255,  //
                                  255, 255, 0,   255, 255, 255, 255,  //
                                  255, 255, 255, 255, 255, 255, 255});
  // What cannot be written leaves what is there.
  const auto bytes = fs::file_size(path);
  check_has(error_of([&] {
              data::save_image(Tensor::zeros({2, 2, 4, 4}), path);
            }),
            "expected images of 1 or 3 channels, got 2 of shape [2, 2, 4, 4]");
  check_has(error_of([&] {
              data::save_image(Tensor::zeros({2, 3, 0, 4}), path);
            }),
            "expected f32 images [N, C, H, W], [C, H, W] or [H, W], got f32 [2, 3, 0, 4]");
  check_has(error_of([&] { data::save_image(Tensor::zeros({4}), path); }), "got f32 [4]");
  check_has(error_of([&] { data::save_image(images, path, {.nrow = 0}); }),
            "expected nrow >= 1 and padding >= 0, got 0 and 2");
  check_has(error_of([&] { data::save_image(images, folder.path / "grid.jpg"); }),
            "expected a path that ends with .png");
  check_has(error_of([&] { data::save_image(images, folder.path / "none" / "grid.png"); }),
            "grid.png");
  CHECK(fs::file_size(path) == bytes);
}

TEST_CASE("an archive is the set that its folders would be, packed or not") {
  const Folder folder;
  Bytes archive = tar_entry("train/", "", '5');
  for (const unsigned seed : {3u, 1u, 2u}) {
    const std::string name = concat("train/", seed == 1 ? "cat" : "dog", "/", seed, ".png");
    const Bytes image = png_of(drawn_image(6, 4, seed));
    folder.write(name, image);
    append(archive, tar_entry(name, text_of(image)));
  }
  append(archive, tar_entry("test/cat/9.png", text_of(png_of(drawn_image(6, 4, 9)))));
  append(archive, tar_entry("train/dog/notes.txt", "notes"));
  archive.resize(archive.size() + 1024);
  const auto packed = folder.write("set.tar", archive);
  const auto one = data::image_folder(folder.path / "train");
  const auto two = data::image_archive(packed, "train");
  CHECK(two->classes() == one->classes());
  CHECK(names_of(*two) == names_of(*one));
  const std::vector<std::int64_t> all{0, 1, 2};
  CHECK(two->get(all).x.to_vector<float>() == one->get(all).x.to_vector<float>());
  CHECK(two->get(all).y.to_vector<std::int64_t>() == one->get(all).y.to_vector<std::int64_t>());
  check_has(error_of([&] { data::image_archive(packed, "valid"); }),
            packed.string() + " (valid): expected a folder for each class");
  CHECK(data::image_archive(packed, "test", {}, {"dog", "cat"})->item(0).label == 1);
}

TEST_CASE("an archive has the classes, links and last versions that its folders would have") {
  const Folder folder;
  const Bytes one = png_of(drawn_image(6, 4, 1)), two = png_of(drawn_image(6, 4, 2));
  const auto packed = [&](const std::vector<Bytes>& entries) {
    Bytes archive;
    for (const Bytes& entry : entries) append(archive, entry);
    archive.resize(archive.size() + 1024);
    return folder.write("set.tar", archive);
  };
  const auto link_to = [](const std::string& name, const std::string& target) {
    return tar_entry(name, "", '1', "", target);
  };
  const auto words = [&](const std::vector<Bytes>& entries) {
    return error_of([&] { data::image_archive(packed(entries), "train"); });
  };
  const Bytes cat = tar_entry("train/cat/1.png", text_of(one));
  for (const Bytes& empty : {tar_entry("train/dog/", "", '5'), tar_entry("train/dog", "", '5'),
                             tar_entry("train/dog/", ""), tar_entry("./train/dog/a.txt", "text")}) {
    check_has(words({empty, cat}), "(train): found no .jpg, .jpeg or .png file in dog");
  }
  CHECK(words({tar_entry("train/", "", '5'), tar_entry("train/a.txt", "text"), cat,
               tar_entry("test/dog/", "", '5')}) == "nothing");

  const auto twice = data::image_archive(packed({tar_entry("train/cat/2.png", text_of(one)), cat,
                                                 tar_entry("train/./cat/2.png", text_of(two))}),
                                         "train");
  REQUIRE(twice->size() == 2);
  CHECK(twice->image(0) == drawn_image(6, 4, 1));
  CHECK(twice->image(1) == drawn_image(6, 4, 2));

  const auto linked = data::image_archive(
      packed({tar_entry("test/cat/9.png", text_of(two)), tar_entry("test/8", text_of(one)), cat,
              link_to("train/cat/2.png", "train/cat/1.png"), link_to("train/dog/3.png", "test/8"),
              link_to("train/dog/4.png", "test/cat/9.png"),
              link_to("train/dog/5.png", "train/dog/3.png")}),
      "train");
  CHECK(linked->classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(names_of(*linked) == std::vector<std::string>{"1.png", "2.png", "3.png", "4.png", "5.png"});
  for (const std::int64_t i : {0, 1, 2, 4}) CHECK(linked->image(i) == drawn_image(6, 4, 1));
  CHECK(linked->image(3) == drawn_image(6, 4, 2));
  check_has(
      words({cat, link_to("train/cat/2.png", "else.png")}),
      ": train/cat/2.png: expected a link to a file of the archive before it, got 'else.png'");
}

TEST_CASE("what is large in an archive is not unpacked in vain") {
  const Folder folder;
  const auto path =
      folder.write("set.tar", tar_entry("cat/1.png", std::string((64 << 20) + 1616, '\0')));
  CHECK(
      error_of([&] { data::image_archive(path, "", {.max_pixels = 100}); }) ==
      concat("[data] ", path.string(),
             ": cat/1.png: expected a file of an image of at most 100 pixels, got 67110480 bytes; "
             "where that is meant, allow it (max_pixels)"));
  Bytes two = tar_entry("cat/1.png", std::string(700, 'a'));
  append(two, tar_entry("cat/2.png", std::string(301, 'a')));
  two.resize(two.size() + 512);
  folder.write("set.tar", two);
  CHECK(error_of([&] { data::image_archive(path, "", {.max_bytes = 1000}); }) ==
        concat("[data] ", path.string(),
               ": expected images of at most 1000 bytes together, got 1001 up to cat/2.png; where "
               "that is meant, allow it (max_bytes)"));
  CHECK(data::image_archive(path, "", {.max_bytes = 1001})->size() == 2);
  folder.write("set.tar", tar_entry("x", std::string(2 << 20, 'a'), 'L'));
  CHECK(error_of([&] { data::image_archive(path); }) ==
        concat("[data] ", path.string(),
               ": damaged archive: header 0 says that a name has 2097152 "
               "bytes; copy or download the archive again"));
}

TEST_CASE("an archive that stops without its end is named in the log") {
  const Folder folder;
  Bytes archive = tar_entry("cat/1.png", text_of(png_of(drawn_image(6, 4, 1))));
  const auto told = [&] {
    return testing::stderr_of([&] { data::image_archive(folder.write("set.tar", archive)); });
  };
  check_has(told(), "set.tar: it stops after 1 headers without the zeros that end an archive");
  archive.resize(archive.size() + 512);
  CHECK(told().empty());
}

TEST_CASE("tar: long names, prefixes, padding, and what is damaged") {
  const std::string far(120, 'd');
  Bytes archive = tar_entry("././@LongLink", far + "/a.png" + std::string(1, '\0'), 'L');
  append(archive, tar_entry(far.substr(0, 100), "one"));
  const std::string record = "path=" + far + "/b.png\n";
  append(archive, tar_entry("pax", std::to_string(record.size() + 4) + " " + record, 'x'));
  append(archive, tar_entry("short", std::string(512, 'x')));
  append(archive, tar_entry("c.png", "", '0', "some/where"));
  append(archive, tar_entry("link", "", '2'));
  append(archive, tar_entry("last", "four"));
  const auto read = [](const Bytes& bytes) {
    data::TarReader reader(bytes, "F");
    std::vector<std::string> found;
    Bytes content;
    while (const auto entry = reader.next()) {
      if (entry->kind != data::TarEntry::file) continue;
      reader.read(content);
      found.push_back(entry->name + " " + std::to_string(content.size()));
      content.clear();
    }
    return found;
  };
  const std::vector<std::string> expected{far + "/a.png 3", far + "/b.png 512",
                                          "some/where/c.png 0", "last 4"};
  CHECK(read(archive) == expected);
  Bytes ended = archive;
  ended.resize(ended.size() + 1024);
  append(ended, Bytes(512, 7));  // behind the end
  CHECK(read(ended) == expected);

  for (std::size_t size = 1; size < archive.size(); ++size) {
    if (size % 512 == 0) continue;
    CAPTURE(size);
    check_has(error_of([&] {
                read(Bytes(archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(size)));
              }),
              "[data] F: ");
  }
  check_has(error_of([&] { read(Bytes(700, 'x')); }), "F: not a tar archive");
  check_has(error_of([&] { read(Bytes(archive.begin(), archive.begin() + 514)); }),
            "F: it ends within '././@LongLink' (127 bytes), 125 bytes early");
  Bytes damaged = archive;
  damaged[1024 + 3] ^= 1;
  check_has(error_of([&] { read(damaged); }), "F: damaged archive: header 1 has no valid checksum");
  CHECK(read({}).empty());
}

TEST_CASE("the errors name the folder or the file") {
  const Folder folder;
  const auto set_error = [&](const std::string& name) {
    return error_of([&] { data::image_folder(folder.path / name); });
  };
  const std::string at = "[data] " + folder.path.string() + "/";
  CHECK(set_error("none") == at + "none: no such folder of images");
  fs::create_directories(folder.path / "empty");
  CHECK(set_error("empty") ==
        at + "empty: expected a folder for each class, with its .jpg, .jpeg or .png files, found "
             "no folder");
  folder.write("set/cat/1.png", png_of(drawn_image(4, 4)));
  fs::create_directories(folder.path / "set/dog");
  CHECK(set_error("set") == at + "set: found no .jpg, .jpeg or .png file in dog");
  CHECK(error_of([&] { data::image_files(folder.path / "empty"); }) ==
        at + "empty: found no .jpg, .jpeg or .png file in it or below");
  CHECK(error_of([&] { data::image_files(folder.path / "9.png"); }) ==
        at + "9.png: no such image or folder of images");
  const auto one = data::image_files(folder.path / "set/cat/1.png");
  CHECK(one->size() == 1);
  CHECK(one->get(std::vector<std::int64_t>{0}).y.item<std::int64_t>() == -1);
  check_has(error_of([&] { one->get(std::vector<std::int64_t>{1}); }),
            "1.png: expected an index from 0 to 0, got 1");

  folder.write("set/dog/broken.jpg", {0xff, 0xd8, 0xff, 0xe0, 1, 2, 3});
  folder.write("set/dog/wide.png", png_of(drawn_image(4, 6)));
  const auto set = data::image_folder(folder.path / "set");
  check_has(error_of([&] {
              set->get(std::vector<std::int64_t>{0, 1});
            }),
            at + "set/dog/broken.jpg: cannot be read as JPEG: ");
  check_has(error_of([&] {
              set->get(std::vector<std::int64_t>{0, 2});
            }),
            at + "set/dog/wide.png: expected an image of 4 x 4 as " + folder.path.string() +
                "/set/cat/1.png in the same batch, got 4 x 6; end the transform with");
  fs::remove(folder.path / "set/cat/1.png");
  check_has(error_of([&] { set->get(std::vector<std::int64_t>{0}); }), "1.png: no such file");
  // The loader says which sample it was.
  data::DataLoader loader(
      set->with({.transform = data::Compose{data::Lambda(
                     [](data::Image, data::Draw&) { return data::Image(2, 2); })}}),
      {.batch_size = 3, .workers = 2});
  check_has(error_of([&] { loader.next(); }), "[data] sample 0 (batch 0 of epoch 0): ");
  CHECK(error_of([&] {
          data::ImageFiles("S", {{"a.png", 2}}, {"x", "y"}, {});
        }) == "[data] S: expected classes from 0 to 1, or -1 where it is unknown, a.png has 2");
  CHECK(error_of([&] {
          set->with({.normalisation = {{0, 0, 0}, {1, 0, 1}}});
        }) == "[data] normalisation: expected a std above 0 of channel 1, got 0");
}

TEST_CASE("the errors of transforms name the file, once") {
  const Folder folder;
  const auto path = folder.write("set/cat/1.png", png_of(drawn_image(20, 30))).string();
  const auto words = [&](data::Compose transform) {
    const auto set = data::image_folder(folder.path / "set", {.transform = std::move(transform)});
    return error_of([&] { set->get(std::vector<std::int64_t>{0}); });
  };
  CHECK(words(data::Compose{data::RandomCrop(224)}) ==
        concat("[data] ", path,
               ": RandomCrop: expected an image of at least 224 x 224 pixels, got ",
               "20 x 30 with its padding"));
  CHECK(words(data::Compose{data::Lambda([](data::Image, data::Draw&) -> data::Image {
          throw std::runtime_error("no");
        })}) == concat("[data] ", path, ": no"));
  folder.write("set/cat/1.png", {1, 2, 3});
  CHECK(words({}) ==
        concat("[data] ", path, ": expected a JPEG or PNG image, got 3 bytes that are neither"));
}

TEST_CASE("a set refuses what no image can be before it reads it") {
  const auto archive = std::make_shared<const Bytes>(10);
  const auto words = [&](data::ImageItem item, data::ImageFiles::Archive in) {
    return error_of([&] { data::ImageFiles("S", {std::move(item)}, {"x"}, {}, std::move(in)); });
  };
  CHECK(words({"a.png", 0, 4, 7}, archive) ==
        "[data] S: expected bytes inside of its archive of 10, a.png has 7 from 4");
  CHECK(words({"a.png", 0, 11, 0}, archive) ==
        "[data] S: expected bytes inside of its archive of 10, a.png has 0 from 11");
  CHECK(words({"a.png", 0, 4, 6}, archive) == "nothing");
  CHECK(words({"a.png", 0, 0, 7}, nullptr) ==
        "[data] S: expected bytes inside of its archive of 0, a.png has 7 from 0");
  const Folder folder;
  const auto path = folder.write("a.jpg", {});
  fs::resize_file(path, (64 << 20) + 1616);
  const auto set = data::image_files(path, {.max_pixels = 100});
  CHECK(
      error_of([&] { set->image(0); }) ==
      concat("[data] ", path.string(),
             ": expected a file of an image of at most 100 pixels, got 67110480 bytes; where that "
             "is meant, allow it (max_pixels)"));
}

TEST_CASE("what a transform draws belongs to the sample, whatever batch, worker or rank it is in") {
  const Folder folder;
  for (unsigned i = 0; i < 12; ++i) {
    folder.write(concat("set/", i % 2 ? "odd" : "even", "/", i, ".png"),
                 png_of(drawn_image(5, 5, i)));
  }
  const auto set = data::image_folder(
      folder.path / "set",
      {.transform = data::Compose{data::Lambda([](data::Image image, data::Draw& draw) {
         image.pixels[0] = static_cast<std::uint8_t>(draw.below(256));
         return image;
       })}});
  const auto first_bytes = [&](int workers, std::int64_t batch, int world) {
    std::vector<float> by_sample(12);
    for (int rank = 0; rank < world; ++rank) {
      data::DataLoader loader(set, {.batch_size = batch,
                                    .shuffle = true,
                                    .shard = Place{rank, world},
                                    .seed = 3,
                                    .workers = workers,
                                    .exact = true});
      while (const auto made = loader.next()) {
        const auto places = loader.places();
        for (std::int64_t i = 0; i < made->size(); ++i) {
          by_sample[static_cast<std::size_t>(places[static_cast<std::size_t>(i)])] =
              made->x.data<float>()[i * 75];
        }
      }
    }
    return by_sample;
  };
  const auto expected = first_bytes(0, 12, 1);
  CHECK(first_bytes(2, 5, 1) == expected);
  CHECK(first_bytes(2, 1, 3) == expected);
  CHECK(first_bytes(1, 4, 2) == expected);
}

TEST_CASE("CIFAR-10 itself, from its archive") {
  const char* named = std::getenv("PEAL_TEST_DATA");
  const fs::path path = (named ? fs::path(named) : fs::path(PEAL_SOURCE_ROOT) / "../shared/data") /
                        "cifar10-images.tar.gz";
  if (!fs::exists(path)) {
    MESSAGE("SKIPPED: no CIFAR-10 at ", path.string(),
            "; set PEAL_TEST_DATA to a folder with cifar10-images.tar.gz in it");
    return;
  }
  const auto test = data::cifar10(path, false);
  CHECK(test->size() == 8000);
  CHECK(test->classes().front() == "airplane");
  std::vector<std::int64_t> some;
  for (std::int64_t i = 0; i < test->size(); i += 100) some.push_back(i);
  const auto [x, y] = test->get(some);
  CHECK(x.shape() == Shape{80, 3, 32, 32});
  const auto values = x.to_vector<float>();
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  CHECK(std::abs(mean) < 0.2);
  CHECK(y.to_vector<std::int64_t>().back() == 9);
}
