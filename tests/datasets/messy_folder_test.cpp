// Image folders as they occur in practice: nested, linked, with files that are not images.
#include <sys/stat.h>

#include <filesystem>

#include "datasets/image_files.h"
#include "engine/data/data_sets.h"
#include "tests/engine/data/encoded_images.h"
#include "tests/engine/data/support.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using namespace data_test;
namespace fs = std::filesystem;

/// A folder of two classes with one image each.
struct MessyDir : TempDir {
  MessyDir() {
    put("train/cat/b.png", 1);
    put("train/dog/a.png", 2);
  }
  void put(const std::string& name, std::uint8_t value) const {
    write(name, png(8, 8, 1, Bytes(64, value)));
  }
  DataSets read(bool leaves_out = false, std::int64_t classes = 2) const {
    DataRequirements requirements{{4, 4, 3}, classes};
    requirements.leaves_out_files = leaves_out;
    return open("image_folder", {{"root", path()}}, requirements);
  }
  std::string error(std::int64_t classes = 2) const {
    return error_of([&] { read(false, classes); }, *this);
  }
  /// Returns the notes, with the folder's path replaced by "$".
  std::vector<std::string> notes(bool leaves_out = false, std::int64_t classes = 2) const {
    std::vector<std::string> notes = read(leaves_out, classes).notes;
    for (std::string& note : notes) {
      for (std::size_t at; (at = note.find(path())) != std::string::npos;) {
        note.replace(at, path().size(), "$");
      }
    }
    return notes;
  }
  /// Returns the training files, relative to the folder.
  std::vector<std::string> files() const {
    const DataSets sets = read();
    std::vector<std::string> all;
    for (std::int64_t i = 0; i < sets.train->size(); ++i) {
      all.push_back(sets.train->describe(i).substr(path().size() + 7));
    }
    return all;
  }
};

using Texts = std::vector<std::string>;

TEST_CASE("messy folders: every extension of an image in any case, and the content decides") {
  const MessyDir dir;
  const Texts names = {"a.JPG", "b.jpeg", "c.jpe",  "d.JFIF", "e.png", "f.webp", "g.bmp",
                       "h.gif", "i.tif",  "j.TIFF", "k.pbm",  "l.pgm", "m.ppm",  "n.pnm"};
  fs::remove(dir / "train/cat/b.png");
  for (const std::string& name : names) dir.put("train/cat/" + name, 7);
  dir.write("train/cat/._photo.jpg", {0, 5, 22, 7});
  Texts expected;
  for (const std::string& name : names) expected.push_back("cat/" + name);
  expected.emplace_back("dog/a.png");
  CHECK(dir.files() == expected);
  const DataSets sets = dir.read();
  CHECK(sets.notes.empty());
  CHECK(sample(*sets.train, 9) == std::pair(Bytes(48, 7), 0));
}

TEST_CASE("messy folders: nested folders are walked, sorted by path") {
  const MessyDir dir;
  dir.put("train/cat/a/2.png", 3);
  dir.put("train/cat/a/deep/er/1.png", 4);
  dir.put("train/cat/a.png", 5);
  dir.put("train/cat/a-b/1.png", 6);
  dir.put("train/cat/.git/1.png", 6);
  fs::create_directory(dir / "train/cat/nothing");
  CHECK(dir.files() == Texts{"cat/a-b/1.png", "cat/a.png", "cat/a/2.png", "cat/a/deep/er/1.png",
                             "cat/b.png", "dog/a.png"});
  CHECK(sample(*dir.read().train, 3) == std::pair(Bytes(48, 4), 0));
  CHECK(dir.notes().empty());
}

TEST_CASE("messy folders: files that are not images are left out, with one note that counts them") {
  const MessyDir dir;
  const std::string before = dir.read().train->fingerprint();
  dir.write("train/cat/Thumbs.db", {1});
  dir.write("train/dog/Thumbs.db", {1});
  dir.write("train/dog/more/labels.JSON", {1});
  dir.write("train/README", {1});
  dir.put("test/cat/1.png", 3);
  dir.write("test/cat/x.json", {1});
  CHECK(dir.notes() == Texts{"image_folder: $: 5 files that are not images are left out: 2 .json, "
                             "1 README, 2 Thumbs.db",
                             "the test data has no samples of 1 of the 2 classes: dog"});
  CHECK(dir.read().train->fingerprint() == before);
  // The note lists ten kinds of files and counts the other files together.
  for (char c = 'a'; c <= 'z'; ++c) dir.write(std::string("train/cat/x.") + c + "q", {1});
  const std::string many = dir.notes()[0];
  CHECK(
      many.starts_with("image_folder: $: 31 files that are not images are left out: 1 .aq, 1 .bq"));
  CHECK(many.ends_with(", and 21 others"));
}

TEST_CASE("messy folders: images that dpt does not read are refused, or left out and counted") {
  const MessyDir dir;
  dir.write("train/cat/h.HEIC", {1});
  CHECK(dir.error() ==
        "$/train/cat/h.HEIC: a HEIC image, which dpt does not read: convert it with heif-convert "
        "IN.heic OUT.jpg, or leave it out with data.on_bad_sample: skip");
  dir.write("train/dog/v.avif", {1});
  dir.write("train/dog/w.avif", {1});
  CHECK(dir.notes(true) ==
        Texts{"image_folder: $: 3 files that cannot be read are left out: 2 AVIF, 1 HEIC"});
  CHECK(dir.read(true).train->size() == 2);
}

TEST_CASE("messy folders: all problems are listed at once") {
  const MessyDir dir;
  fs::create_directory(dir / "train/emu");
  dir.write("train/fox/Thumbs.db", {1});
  dir.write("train/cat/h.heic", {1});
  for (const char* name : {"1", "2", "3", "4", "5"}) {
    dir.write(std::string("train/dog/") + name + ".avif", {1});
  }
  fs::create_symlink("nothing", dir / "train/cat/dead.jpg");
  fs::create_symlink("nothing", dir / "train/cat/dead.txt");
  REQUIRE(mkfifo((dir / "train/cat/p.png").c_str(), 0600) == 0);
  dir.put("test/gnu/1.png", 1);
  dir.write("test/cat/x.svg", {1});
  dir.put("test/cat/1.png", 1);
  dir.put("test/2.png", 1);
  CHECK(dir.error() ==
        "image_folder: $: 13 problems with the files:\n"
        "  $/train/emu, $/train/fox: empty class folders: put images into them, or remove them\n"
        "  $/test/2.png: an image next to the class folders: move it into the folder of its "
        "class\n"
        "  $/test/gnu: $/train has no class 'gnu'; add samples to train on, or "
        "remove these\n"
        "  $/train/cat/h.heic: a HEIC image, which dpt does not read: convert it with heif-convert "
        "IN.heic OUT.jpg, or leave it out with data.on_bad_sample: skip\n"
        "  $/train/dog/1.avif, $/train/dog/2.avif, $/train/dog/3.avif and 2 more: AVIF images, "
        "which dpt does not read: convert them with avifdec IN.avif OUT.png, or leave them out "
        "with data.on_bad_sample: skip\n"
        "  $/test/cat/x.svg: an SVG drawing, which dpt does not read: convert it with rsvg-convert "
        "IN.svg -o OUT.png, or leave it out with data.on_bad_sample: skip\n"
        "  $/train/cat/dead.jpg: a link that leads nowhere: restore its target or remove it, or "
        "leave it out with data.on_bad_sample: skip\n"
        "  $/train/cat/p.png: not a regular file: remove it, or leave it out with "
        "data.on_bad_sample: skip");
}

TEST_CASE("messy folders: an empty class is reported before the number of classes") {
  const MessyDir dir;
  fs::create_directory(dir / "train/emu");
  CHECK(dir.error(2) == "$/train/emu: an empty class folder: put images into it, or remove it");
}

TEST_CASE("messy folders: links are followed wherever they lead, but not in circles") {
  const MessyDir dir;
  const TempDir outside;
  outside.write("pets/one.png", png(8, 8, 1, Bytes(64, 9)));
  outside.write("pets/more/two.png", png(8, 8, 1, Bytes(64, 9)));
  fs::create_directory_symlink(outside / "pets", dir / "train/emu");
  fs::create_directory_symlink(outside / "pets/more", dir / "train/cat/linked");
  fs::create_symlink(outside / "pets/one.png", dir / "train/cat/link.png");
  const auto files = [&] {
    const DataSets sets = dir.read(false, 3);
    Texts all;
    for (std::int64_t i = 0; i < sets.train->size(); ++i) {
      all.push_back(sets.train->describe(i).substr(dir.path().size() + 7));
    }
    return std::pair(all, sets.notes.size());
  };
  const Texts expected = {"cat/b.png", "cat/link.png",     "cat/linked/two.png",
                          "dog/a.png", "emu/more/two.png", "emu/one.png"};
  CHECK(files() == std::pair(expected, std::size_t{0}));
  // Links to a folder above, through another folder to itself, and to the root.
  fs::create_directory_symlink("..", outside / "pets/more/up");
  fs::create_directory_symlink(dir.path(), dir / "train/dog/root");
  CHECK(files() == std::pair(expected, std::size_t{1}));
  CHECK(dir.notes(false, 3)[0] ==
        "image_folder: $: 3 links to a folder above them are left out: $/train/cat/linked/up, "
        "$/train/dog/root, $/train/emu/more/up");
}

TEST_CASE("messy folders: a part may be a link") {
  const MessyDir dir;
  const TempDir outside;
  outside.write("dog/1.png", png(8, 8, 1, Bytes(64, 9)));
  fs::create_directory_symlink(outside.path(), dir / "test");
  CHECK(dir.read().test->size() == 1);
}

TEST_CASE("messy folders: predict lists what it leaves out") {
  const MessyDir dir;
  const TempDir outside;
  outside.write("in/1.gif", {1});
  dir.write("all/b.webp", {1});
  dir.write("all/a/1.tiff", {1});
  dir.write("all/v.heic", {1});
  dir.write("all/notes.txt", {1});
  dir.write("all/.hidden.png", {1});
  fs::create_directory_symlink(outside / "in", dir / "all/linked");
  fs::create_symlink("nothing", dir / "all/dead.png");
  const ListedImages listed = list_images({dir / "all", "x/any.name"});
  CHECK(listed.paths == Texts{dir / "all/a/1.tiff", dir / "all/b.webp", dir / "all/dead.png",
                              dir / "all/linked/1.gif", "x/any.name"});
  CHECK(listed.notes == Texts{dir / "all: 1 file that is not an image is left out: 1 .txt",
                              dir / "all: 1 file that cannot be read is left out: 1 HEIC"});
}

TEST_CASE("messy folders: the fingerprint of a folder that opened before is what it was") {
  const TempDir dir;
  dir.write("train/cat/b.png", {1});
  dir.write("train/cat/B.JPG", {1, 2});
  dir.write("train/dog/a.jpeg", {1, 2, 3});
  const DataSets sets = open("image_folder", {{"root", dir.path()}}, {{4, 5, 3}, 2});
  // XXH3 of "image_folder v1 4x5x3" followed by names and sizes, in this order.
  CHECK(sets.train->fingerprint() == "xxh3:4b2b3f185b1a686f");
}

}  // namespace
}  // namespace dpt
