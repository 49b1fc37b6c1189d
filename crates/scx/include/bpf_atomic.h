#include <scx/common.bpf.h>
/* Atomic operations in the names of the kernel. */
#ifndef COUNTERSTEER_ATOMIC_H
#define COUNTERSTEER_ATOMIC_H

#define cmpxchg(place, old, new) __sync_val_compare_and_swap((place), (old), (new))
#define try_cmpxchg(place, expected, new) ({ \
	typeof(*(place)) expected_ = *(expected), found_ = cmpxchg((place), expected_, (new)); \
	*(expected) = found_; \
	found_ == expected_; })
#define try_cmpxchg_relaxed try_cmpxchg
#define try_cmpxchg_acquire try_cmpxchg
#define smp_mb() __sync_synchronize()
#define smp_rmb smp_mb
#define smp_wmb smp_mb
#define smp_load_acquire(place) READ_ONCE(*(place))
#define smp_store_release(place, value) ((void)(WRITE_ONCE(*(place), value)))
#define atomic_read(place) READ_ONCE((place)->counter)

#endif
