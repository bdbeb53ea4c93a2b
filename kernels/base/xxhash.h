// xxHash. If the library supports it, the XXH3 functions select the processor's widest vectors at
// run time. This is 1.5 times as fast on data that is not in a cache.
#pragma once

#ifdef DPT_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
