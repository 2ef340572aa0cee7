// SPDX-License-Identifier: Apache-2.0
// Folders of images, one a class (torchvision: ImageFolder): train/dog/1.jpg, train/cat/2.png. The
// classes are the folders' names, sorted; a class has all .jpg, .jpeg and .png files below its
// folder, by folder and name. So the same folder gives the same set everywhere. Archives (.tar,
// .tar.gz) that hold such folders are sets as well, read into memory once. Thread safety: free
// functions without state.
#pragma once

#include <peal/data/images/image_files.h>

#include <filesystem>
#include <string>
#include <vector>

namespace peal::data {

// Where `classes` are given they are the classes, in this order, and a folder of another name is an
// error; a class without a folder is none. Errors: no such folder, one without folders of classes,
// a class without an image, one of `classes` that comes twice.
ImageFilesRef image_folder(const std::filesystem::path& root, ImageOptions options = {},
                           const std::vector<std::string>& classes = {});

// Of those in an archive below `under` ("train"), or in all of it: the set that its folders would
// be, but for symbolic links, which are passed over. Errors: as above, those of TarReader, a link
// to what does not come before it, and more than max_bytes.
ImageFilesRef image_archive(const std::filesystem::path& archive, const std::string& under = "",
                            ImageOptions options = {},
                            const std::vector<std::string>& classes = {});

// Images of no known class: one file, or all files of a folder and those below it, sorted. Error:
// no such file or folder, a folder without an image.
ImageFilesRef image_files(const std::filesystem::path& path, ImageOptions options = {});

// CIFAR-10 as folders of images: `path` is a folder or an archive with train/<class>/... and
// test/<class>/... in it. Errors: as above, and other classes than the ten.
ImageFilesRef cifar10(const std::filesystem::path& path, bool train,
                      ImageOptions options = {.normalisation = cifar10_normalisation});

}  // namespace peal::data
