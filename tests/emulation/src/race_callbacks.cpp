// The functions that code compiled with -fsanitize=thread calls, in place of ThreadSanitizer's.
#include "races.h"

#ifdef DPT_EMULATED_RACES

using emulation::races::Access;
using emulation::races::record;

namespace {

template <class T>
void record_atomic(const volatile T* address, const void* place) {
  record(const_cast<const T*>(address), sizeof(T), Access::atomic, place);
}

}  // namespace

#define DPT_PLACE __builtin_return_address(0)

#define DPT_ACCESS(bytes)                             \
  void __tsan_read##bytes(void* address) {            \
    record(address, bytes, Access::read, DPT_PLACE);  \
  }                                                   \
  void __tsan_write##bytes(void* address) {           \
    record(address, bytes, Access::write, DPT_PLACE); \
  }                                                   \
  void __tsan_unaligned_read##bytes(void* address) {  \
    record(address, bytes, Access::read, DPT_PLACE);  \
  }                                                   \
  void __tsan_unaligned_write##bytes(void* address) { \
    record(address, bytes, Access::write, DPT_PLACE); \
  }

#define DPT_UPDATE(T, bits, name)                                     \
  T __tsan_atomic##bits##_##name(volatile T* address, T value, int) { \
    record_atomic(address, DPT_PLACE);                                \
    return __atomic_##name(address, value, __ATOMIC_SEQ_CST);         \
  }

#define DPT_COMPARE(T, bits, strength, weak)                                               \
  bool __tsan_atomic##bits##_compare_exchange_##strength(volatile T* address, T* expected, \
                                                         T value, int, int) {              \
    record_atomic(address, DPT_PLACE);                                                     \
    return __atomic_compare_exchange_n(address, expected, value, weak, __ATOMIC_SEQ_CST,   \
                                       __ATOMIC_SEQ_CST);                                  \
  }

#define DPT_ATOMIC(T, bits)                                             \
  T __tsan_atomic##bits##_load(const volatile T* address, int) {        \
    record_atomic(address, DPT_PLACE);                                  \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                  \
  }                                                                     \
  void __tsan_atomic##bits##_store(volatile T* address, T value, int) { \
    record_atomic(address, DPT_PLACE);                                  \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                 \
  }                                                                     \
  T __tsan_atomic##bits##_exchange(volatile T* address, T value, int) { \
    record_atomic(address, DPT_PLACE);                                  \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);       \
  }                                                                     \
  DPT_UPDATE(T, bits, fetch_add)                                        \
  DPT_UPDATE(T, bits, fetch_sub)                                        \
  DPT_UPDATE(T, bits, fetch_and)                                        \
  DPT_UPDATE(T, bits, fetch_or)                                         \
  DPT_UPDATE(T, bits, fetch_xor)                                        \
  DPT_COMPARE(T, bits, strong, false)                                   \
  DPT_COMPARE(T, bits, weak, true)

extern "C" {

DPT_ACCESS(1)
DPT_ACCESS(2)
DPT_ACCESS(4)
DPT_ACCESS(8)
DPT_ACCESS(16)

void __tsan_read_range(void* address, unsigned long bytes) {
  record(address, bytes, Access::read, DPT_PLACE);
}
void __tsan_write_range(void* address, unsigned long bytes) {
  record(address, bytes, Access::write, DPT_PLACE);
}

DPT_ATOMIC(unsigned char, 8)
DPT_ATOMIC(unsigned short, 16)
DPT_ATOMIC(unsigned, 32)
DPT_ATOMIC(unsigned long, 64)

void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}

#endif
