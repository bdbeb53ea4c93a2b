// xxHash. If the library supports it, the XXH3 functions use the processor's widest vectors, found
// at run time, which is one and a half times as fast on data that comes from memory.
#pragma once

#ifdef DPT_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
