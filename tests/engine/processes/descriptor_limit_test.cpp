// The number of descriptors that the processes of a world need.
#include "engine/processes/descriptor_limit.h"

#include <doctest/doctest.h>

namespace dpt::testing {
namespace {

TEST_CASE(
    "rank 0 needs a descriptor for each process that joins, the others need as many in any world") {
  CHECK(descriptors_to_join(0, 100) - descriptors_to_join(0, 2) == 98);
  CHECK(descriptors_to_join(0, 2) > descriptors_to_join(1, 2));
  CHECK(descriptors_to_join(1, 100) == descriptors_to_join(1, 2));
}

TEST_CASE("a run needs two connections to each other process, beyond those that join") {
  const auto links = [](int rank, int size) {
    return descriptors_to_run(rank, size) - descriptors_to_join(rank, size);
  };
  for (const int rank : {0, 1}) CHECK(links(rank, 100) - links(rank, 2) == 2 * 98);
}

}  // namespace
}  // namespace dpt::testing
