#include "kernels/image/jpeg/baseline_jpeg.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/base/divide.h"

namespace dpt {
namespace {

/// Maximum number of pixels of a part, and of coded bytes of a file. libjpeg decodes larger ones.
/// The limits matter because a thread keeps the memory that its largest part needed.
constexpr std::int64_t kMaxPartPixels = std::int64_t{1} << 22;
constexpr std::size_t kMaxCodedBytes = std::size_t{1} << 23;
/// Margin of a part in pixels. The part's colours are interpolated from one more sample on each
/// side, which is two pixels wide for 4:2:0.
constexpr std::int64_t kColourMargin = 2;

std::size_t size_of(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

/// A cached table of codes. It is replaced when a file has other codes.
struct CodesSlot {
  std::array<std::uint8_t, 17> bits{};
  std::array<std::uint8_t, 256> symbols{};
  bool is_filled = false, is_good = false;
  jpeg_loops::Codes codes;

  /// Returns the codes of `table`; null if it is invalid.
  const jpeg_loops::Codes* of(const JHUFF_TBL& table, bool is_dc) {
    if (!is_filled || std::memcmp(bits.data(), table.bits, bits.size()) != 0 ||
        std::memcmp(symbols.data(), table.huffval, symbols.size()) != 0) {
      std::copy_n(table.bits, bits.size(), bits.begin());
      std::copy_n(table.huffval, symbols.size(), symbols.begin());
      is_good = jpeg_loops::make_codes(bits.data(), symbols.data(), is_dc, codes);
      is_filled = true;
    }
    return is_good ? &codes : nullptr;
  }
};

}  // namespace

/// Buffers that the images decoded by one thread share.
struct BaselineJpeg::Workspace {
  std::vector<std::uint8_t> coded;
  std::array<CodesSlot, NUM_HUFF_TBLS> dc, ac;
  std::array<std::array<std::uint16_t, std::size(jpeg_loops::kOrder)>, 3> quantisers;
  std::array<std::vector<std::uint8_t>, 3> planes;
  std::vector<std::int16_t> sums;
  std::array<std::vector<std::uint8_t>, 3> colours;
  std::vector<std::uint8_t> rows;
};

BaselineJpeg::Workspace& BaselineJpeg::workspace() {
  thread_local Workspace workspace;
  return workspace;
}

BaselineJpeg::BaselineJpeg(const jpeg_decompress_struct& info, int eighths, PixelRange rows,
                           PixelRange columns, bool grey)
    : info_(info),
      memory_(workspace()),
      eighths_(eighths),
      rows_(rows),
      columns_(columns),
      components_(grey ? 1 : info.num_components) {}

bool BaselineJpeg::is_of_the_kind() const {
  if (!jpeg_loops::are_available() || info_.progressive_mode || info_.arith_code ||
      info_.data_precision != 8 || info_.restart_interval != 0 ||
      info_.comps_in_scan != info_.num_components || info_.Ss != 0 || info_.Se != DCTSIZE2 - 1 ||
      info_.Ah != 0 || info_.Al != 0) {
    return false;
  }
  if (info_.jpeg_color_space == JCS_GRAYSCALE) return info_.num_components == 1;
  if (info_.jpeg_color_space != JCS_YCbCr || info_.num_components != 3) return false;
  const jpeg_component_info* components = info_.comp_info;
  const int across = components[0].h_samp_factor, down = components[0].v_samp_factor;
  if (across > 2 || down > across) return false;
  for (int c = 1; c < 3; ++c) {
    if (components[c].h_samp_factor != 1 || components[c].v_samp_factor != 1) return false;
  }
  if (across == 1) return true;
  // At full size, libjpeg interpolates colours only if their rows have more than two samples.
  return eighths_ == DCTSIZE ? info_.image_width > 4 : down == 2;
}

bool BaselineJpeg::find_codes() {
  scan_.block_count = 0;
  for (int c = 0; c < info_.num_components; ++c) {
    // Components are in the order of the scan, which is the order of blocks in an MCU.
    const jpeg_component_info& component = *info_.cur_comp_info[c];
    if (component.component_index != c || component.dc_tbl_no >= NUM_HUFF_TBLS ||
        component.ac_tbl_no >= NUM_HUFF_TBLS || component.quant_tbl_no >= NUM_QUANT_TBLS) {
      return false;
    }
    const JHUFF_TBL* dc = info_.dc_huff_tbl_ptrs[component.dc_tbl_no];
    const JHUFF_TBL* ac = info_.ac_huff_tbl_ptrs[component.ac_tbl_no];
    const JQUANT_TBL* quantisers = info_.quant_tbl_ptrs[component.quant_tbl_no];
    if (!dc || !ac || !quantisers) return false;
    jpeg_loops::BlockKind kind;
    kind.dc = memory_.dc[size_of(component.dc_tbl_no)].of(*dc, true);
    kind.ac = memory_.ac[size_of(component.ac_tbl_no)].of(*ac, false);
    if (!kind.dc || !kind.ac) return false;
    auto& ordered = memory_.quantisers[size_of(c)];
    for (std::size_t k = 0; k < ordered.size(); ++k)
      ordered[k] = quantisers->quantval[jpeg_loops::kOrder[k]];
    kind.quantisers = ordered.data();
    kind.component = c;
    kind.is_wanted = c < components_;
    for (std::int64_t block = 0; block < planes_[c].across * planes_[c].down; ++block) {
      scan_.blocks[scan_.block_count++] = kind;
    }
  }
  return true;
}

/// Removes the stuffing, a 0 after each 0xff. Returns false unless the end of the image follows.
bool BaselineJpeg::find_coded_bytes() {
  const JOCTET* from = info_.src->next_input_byte;
  const JOCTET* end = from + info_.src->bytes_in_buffer;
  std::vector<std::uint8_t>& coded = memory_.coded;
  if (info_.src->bytes_in_buffer > kMaxCodedBytes) return false;
  coded.resize(std::max(coded.size(), info_.src->bytes_in_buffer + jpeg_loops::kBytesBeyond));
  std::uint8_t* to = coded.data();
  for (;;) {
    const void* found = std::memchr(from, 0xff, static_cast<std::size_t>(end - from));
    if (!found) return false;
    const auto* marker = static_cast<const JOCTET*>(found);
    if (end - marker < 2) return false;
    to = std::copy(from, marker, to);
    from = marker + 2;
    if (marker[1] == JPEG_EOI) break;
    if (marker[1] != 0) return false;
    *to++ = 0xff;
  }
  std::memset(to, 0, jpeg_loops::kBytesBeyond);
  scan_.next = coded.data();
  scan_.end = to;
  return true;
}

std::uint8_t* BaselineJpeg::plane_row(int component, std::int64_t row) const {
  const Plane& plane = planes_[component];
  const std::int64_t first = mcu_rows_.begin * plane.down * plane.block;
  return memory_.planes[size_of(component)].data() + (row - first) * plane.stride;
}

void BaselineJpeg::read_mcu(std::int64_t row, std::int64_t column) {
  alignas(32) jpeg_loops::Block blocks[jpeg_loops::kMaxBlocks];
  bool has_ac[jpeg_loops::kMaxBlocks];
  jpeg_loops::read_mcu(scan_, blocks, has_ac);
  if (!scan_.is_good) return;
  // Two blocks of the same size are transformed at once.
  const jpeg_loops::Block* waiting = nullptr;
  jpeg_loops::BlockPlace its_place;
  int its_size = 0;
  const auto transform_with = [&](const jpeg_loops::Block& other, jpeg_loops::BlockPlace place) {
    scan_.is_good &= jpeg_loops::inverse_dct(*waiting, its_place, other, place, its_size);
    waiting = nullptr;
  };
  int i = 0;
  for (int c = 0; c < components_; ++c) {
    const Plane& plane = planes_[c];
    const int size = static_cast<int>(plane.block);
    if (waiting && its_size != size) transform_with(*waiting, its_place);
    for (std::int64_t y = 0; y < plane.down; ++y) {
      for (std::int64_t x = 0; x < plane.across; ++x, ++i) {
        const jpeg_loops::BlockPlace place{
            plane_row(c, (row * plane.down + y) * plane.block) +
                ((column - mcu_columns_.begin) * plane.across + x) * plane.block,
            plane.stride};
        if (!has_ac[i] || size == 1) {
          jpeg_loops::fill_block(blocks[i][0], size, place);
        } else if (waiting) {
          transform_with(blocks[i], place);
        } else {
          waiting = &blocks[i];
          its_place = place;
          its_size = size;
        }
      }
    }
  }
  if (waiting) transform_with(*waiting, its_place);
}

bool BaselineJpeg::decode() {
  if (!is_of_the_kind()) return false;
  const auto scaled = [&](std::int64_t side) { return ceil_div(side * eighths_, DCTSIZE); };
  const std::int64_t height = scaled(info_.image_height), width = scaled(info_.image_width);
  const bool is_grey = info_.num_components == 1;
  const jpeg_component_info& luma = info_.comp_info[0];
  // In a scan of one component, an MCU has one block, whatever the component's factors are.
  planes_[0].across = is_grey ? 1 : luma.h_samp_factor;
  planes_[0].down = is_grey ? 1 : luma.v_samp_factor;
  mcu_width_ = planes_[0].across * eighths_;
  mcu_height_ = planes_[0].down * eighths_;
  mcus_per_row_ = ceil_div(std::int64_t{info_.image_width}, planes_[0].across * DCTSIZE);
  mcu_rows_ = {std::max<std::int64_t>(rows_.begin - kColourMargin, 0) / mcu_height_,
               ceil_div(std::min(rows_.end + kColourMargin, height), mcu_height_)};
  if (is_grey) {
    // libjpeg reads several rows of blocks at once. Their number is the component's vertical
    // factor.
    const std::int64_t at_once = luma.v_samp_factor;
    mcu_rows_.end = std::min(align_up(mcu_rows_.end, at_once), ceil_div(height, mcu_height_));
  }
  mcu_columns_ = {std::max<std::int64_t>(columns_.begin - kColourMargin, 0) / mcu_width_,
                  ceil_div(std::min(columns_.end + kColourMargin, width), mcu_width_)};
  if (mcu_rows_.size() * mcu_height_ * mcu_columns_.size() * mcu_width_ > kMaxPartPixels)
    return false;
  for (int c = 0; c < components_; ++c) {
    Plane& plane = planes_[c];
    // At a reduced size, 4:2:0 needs no interpolation: its colours, which have half the resolution,
    // are reduced by half as much.
    plane.block = c > 0 && eighths_ < DCTSIZE ? eighths_ * planes_[0].across : eighths_;
    plane.stride = mcu_columns_.size() * plane.across * plane.block;
    plane.height = ceil_div(height * plane.down, planes_[0].down);
    plane.width = ceil_div(width * plane.across, planes_[0].across);
    std::vector<std::uint8_t>& samples = memory_.planes[size_of(c)];
    const std::int64_t rows = mcu_rows_.size() * plane.down * plane.block;
    samples.resize(std::max(samples.size(), size_of(rows * plane.stride + jpeg_loops::kSamples)));
  }
  if (!find_codes() || !find_coded_bytes()) return false;
  jpeg_loops::skip_mcus(scan_, mcu_rows_.begin * mcus_per_row_);
  for (std::int64_t row = mcu_rows_.begin; row < mcu_rows_.end && scan_.is_good; ++row) {
    jpeg_loops::skip_mcus(scan_, mcu_columns_.begin);
    for (std::int64_t x = mcu_columns_.begin; x < mcu_columns_.end && scan_.is_good; ++x) {
      read_mcu(row, x);
    }
    jpeg_loops::skip_mcus(scan_, mcus_per_row_ - mcu_columns_.end);
  }
  return scan_.is_good && !scan_.is_overrun();
}

std::size_t BaselineJpeg::stride() const {
  return size_of(components_ == 1 ? planes_[0].stride
                                  : 3 * align_up(planes_[0].stride, jpeg_loops::kSamples));
}

const std::uint8_t* BaselineJpeg::colour_row(int component, std::int64_t row) {
  const Plane& plane = planes_[component];
  if (plane.stride == planes_[0].stride) return plane_row(component, row);
  std::vector<std::int16_t>& sums = memory_.sums;
  sums.resize(std::max(sums.size(), size_of(align_up(plane.stride, jpeg_loops::kSamples) + 2)));
  std::int16_t* from = sums.data() + 1;
  const bool is_weighted = planes_[0].down == 2;
  if (is_weighted) {
    const std::int64_t near = row / 2;
    const std::int64_t far =
        std::clamp<std::int64_t>(row % 2 == 0 ? near - 1 : near + 1, 0, plane.height - 1);
    jpeg_loops::weighted_rows(plane_row(component, near), plane_row(component, far), plane.stride,
                              from);
  } else {
    jpeg_loops::widened_row(plane_row(component, row), plane.stride, from);
  }
  // Repeat the first and the last sample, as libjpeg does at the edges of the image. Elsewhere no
  // pixel of the part depends on these copies.
  const std::int64_t first = mcu_columns_.begin * DCTSIZE;
  const std::int64_t count = std::min(plane.stride, plane.width - first);
  from[-1] = from[0];
  from[count] = from[count - 1];
  std::vector<std::uint8_t>& colours = memory_.colours[size_of(component)];
  colours.resize(
      std::max(colours.size(), size_of(2 * align_up(plane.stride, jpeg_loops::kSamples))));
  jpeg_loops::doubled_row(from, count, is_weighted ? 8 : 1, is_weighted ? 7 : 2,
                          is_weighted ? 4 : 2, colours.data());
  return colours.data();
}

const std::uint8_t* BaselineJpeg::rows(std::int64_t top, std::int64_t count, std::int64_t beyond) {
  std::vector<std::uint8_t>& rows = memory_.rows;
  const std::size_t needed = size_of(count) * stride() + size_of(beyond);
  rows.resize(std::max(rows.size(), needed));
  for (std::int64_t y = 0; y < count; ++y) {
    std::uint8_t* to = rows.data() + size_of(y) * stride();
    const std::uint8_t* luma = plane_row(0, top + y);
    if (components_ == 1) {
      std::copy_n(luma, planes_[0].stride, to);
    } else {
      jpeg_loops::rgb_row(luma, colour_row(1, top + y), colour_row(2, top + y), planes_[0].stride,
                          to);
    }
  }
  return rows.data();
}

}  // namespace dpt
