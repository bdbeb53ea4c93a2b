#include "engine/collectives/gather_texts.h"

#include <algorithm>
#include <span>

namespace dpt {

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine) {
  const std::size_t bytes = mine.size();
  std::vector<std::size_t> sizes(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::as_bytes(std::span(&bytes, 1)),
                          std::as_writable_bytes(std::span(sizes)));
  const std::size_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::string> texts(sizes.size());
  if (longest == 0) return texts;
  // Every rank contributes a block of the same size.
  std::string block = mine, all(longest * sizes.size(), ' ');
  block.resize(longest, ' ');
  communicator.all_gather(std::as_bytes(std::span(block)), std::as_writable_bytes(std::span(all)));
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    texts[rank] = all.substr(rank * longest, sizes[rank]);
  }
  return texts;
}

}  // namespace dpt
