// xxHash. Where the library has them, its XXH3 functions take the processor's widest vectors, which
// it finds at run time: one and a half times as fast on data that comes from memory.
#pragma once

#ifdef DPT_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
