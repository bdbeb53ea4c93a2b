// bench_decode FOLDER THREADS SECONDS random|exact|stages: images a second from the JPEG files of a
// folder to 224 x 224 RGB. random: RandomResizedCrop(224) with torchvision's defaults, which need
// not be exact; exact: Resize(256) and CenterCrop(224). A round is at least SECONDS long; prints
// images a second. stages: milliseconds an image of both, by stage, on one thread.
#include <cstdio>

#include <jpeglib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "datasets/image.h"
#include "kernels/error.h"

namespace dpt {
namespace {

constexpr std::int64_t kSide = 224, kShorter = 256;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<char>;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Bytes bytes(std::filesystem::file_size(path));
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    fail(ErrorKind::data, "{}: cannot be read", path);
  }
  return bytes;
}

/// As torchvision's RandomResizedCrop draws it.
PicturePart random_part(std::mt19937& random, std::int64_t height, std::int64_t width) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  PicturePart part{{}, kSide, kSide, {0, 0, kSide, kSide}, false};
  for (int i = 0; i < 10; ++i) {
    const double area = static_cast<double>(height * width) * uniform(0.08, 1);
    const double ratio = std::exp(uniform(std::log(3.0 / 4), std::log(4.0 / 3)));
    const std::int64_t w = std::lround(std::sqrt(area * ratio));
    const std::int64_t h = std::lround(std::sqrt(area / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    std::uniform_int_distribution<std::int64_t> top(0, height - h), left(0, width - w);
    part.box = {top(random), left(random), h, w};
    return part;
  }
  const std::int64_t side = std::min(height, width);
  part.box = {(height - side) / 2, (width - side) / 2, side, side};
  return part;
}

/// Resize(256), CenterCrop(224).
PicturePart exact_part(std::int64_t height, std::int64_t width) {
  const std::int64_t shorter = std::min(height, width);
  PicturePart part{
      {0, 0, height, width}, height * kShorter / shorter, width * kShorter / shorter, {}, true};
  part.window = {(part.height - kSide) / 2, (part.width - kSide) / 2, kSide, kSide};
  return part;
}

Image decode(const Bytes& file, const std::string& name, const ChoosePart& choose) {
  return decode_part(std::as_bytes(std::span(file)), name, 3, choose);
}

double images_a_second(const std::vector<std::string>& files, int threads, double seconds,
                       bool is_random) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> ends = false, failed = false;
  std::vector<std::size_t> done(static_cast<std::size_t>(threads) * 16);
  const Clock::time_point begin = Clock::now();
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned int>(t));
      while (!ends) {
        const std::string& path = files[next++ % files.size()];
        try {
          decode(read_bytes(path), path, [&](std::int64_t height, std::int64_t width) {
            return is_random ? random_part(random, height, width) : exact_part(height, width);
          });
        } catch (const std::exception& error) {
          fmt::print(stderr, "bench_decode: {}\n", error.what());
          failed = ends = true;
          return;
        }
        ++done[static_cast<std::size_t>(t) * 16];
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  ends = true;
  for (std::thread& worker : workers) worker.join();
  if (failed) fail(ErrorKind::data, "a file cannot be decoded");
  std::size_t images = 0;
  for (const std::size_t count : done) images += count;
  return static_cast<double>(images) / seconds_since(begin);
}

/// Decodes to rows above `bottom`, without their pixels.
void decode_huffman(const Bytes& file, std::int64_t bottom) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&info, TRUE);
  jpeg_start_decompress(&info);
  // All of them would be skipped undecoded.
  jpeg_skip_scanlines(&info, std::min(static_cast<JDIMENSION>(bottom), info.output_height - 1));
  jpeg_destroy_decompress(&info);
}

void print_stages(const std::vector<std::string>& files, bool is_random) {
  std::vector<Bytes> bytes;
  for (const std::string& path : files) bytes.push_back(read_bytes(path));
  double least[3] = {1e30, 1e30, 1e30};
  for (int round = 0; round < 5; ++round) {
    double spent[3] = {};
    std::mt19937 random(1);
    for (std::size_t i = 0; i < files.size(); ++i) {
      PicturePart part;
      Clock::time_point begin = Clock::now();
      decode(bytes[i], files[i], [&](std::int64_t height, std::int64_t width) {
        return part = is_random ? random_part(random, height, width) : exact_part(height, width);
      });
      spent[0] += seconds_since(begin);
      begin = Clock::now();
      decode_huffman(bytes[i], part.box.top + part.box.height);
      spent[1] += seconds_since(begin);
      const Image whole = decode_image(std::as_bytes(std::span(bytes[i])), files[i], 3);
      begin = Clock::now();
      part_of(whole, part);
      spent[2] += seconds_since(begin);
    }
    for (int s = 0; s < 3; ++s) least[s] = std::min(least[s], spent[s]);
  }
  const double scale = 1e3 / static_cast<double>(files.size());
  fmt::print(
      "{}: {:.3f} ms an image; Huffman {:.3f}, IDCT, upsampling and colour {:.3f}, resize "
      "{:.3f}\n",
      is_random ? "random" : "exact", least[0] * scale, least[1] * scale,
      (least[0] - least[1] - least[2]) * scale, least[2] * scale);
}

int run(int count, char** words) {
  const std::string mode = count == 5 ? words[4] : "";
  if (mode != "random" && mode != "exact" && mode != "stages") {
    fmt::print(stderr, "usage: bench_decode FOLDER THREADS SECONDS random|exact|stages\n");
    return 2;
  }
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(words[1])) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) fail(ErrorKind::data, "{}: no files in it", words[1]);
  if (mode == "stages") {
    print_stages(files, true);
    print_stages(files, false);
  } else {
    fmt::print("{:.1f}\n",
               images_a_second(files, std::stoi(words[2]), std::stod(words[3]), mode == "random"));
  }
  return 0;
}

}  // namespace
}  // namespace dpt

int main(int count, char** words) {
  try {
    return dpt::run(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_decode: {}\n", error.what());
    return 1;
  }
}
