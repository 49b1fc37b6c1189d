/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Replaces libbpf's header: functions that the kernel offers to programs, as ordinary functions. They are in kernel.c and have the
 * kernel's rules: an error for which the kernel would end the scheduler ends the test.
 */
#pragma once

#define SEC(name)
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __ksym
#define __weak
#define __kptr
#define __uint(name, value) int (*name)[value]
#define __type(name, type) __typeof__(type) *name

/* Which of two forms of a function the kernel has. */
extern int has_newer_functions;
#define bpf_ksym_exists(function) has_newer_functions

#define bpf_for(i, from, to) for (__typeof__(to) i##_end = ((i) = (from), (to)); (i) < i##_end; (i)++)
#define bpf_for_each(type, current, args...) \
	for (struct bpf_iter_##type ___it __attribute__((cleanup(bpf_iter_##type##_destroy))), \
	     *___start = (bpf_iter_##type##_new(&___it, args), NULL); \
	     !___start && ((current) = bpf_iter_##type##_next(&___it));)
#define bpf_kptr_xchg(at, new) \
	({ \
		__typeof__(*(at)) old_kptr = *(at); \
		*(at) = (new); \
		old_kptr; \
	})

struct task_struct;
struct bpf_timer;

void *bpf_map_lookup_elem(void *map, const void *key);
long bpf_map_delete_elem(void *map, const void *key);
int bpf_task_storage_delete(void *map, struct task_struct *p);
void *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags);
void *bpf_ringbuf_reserve(void *ring, u64 size, u64 flags);
void bpf_ringbuf_submit(void *data, u64 flags);
u64 bpf_ktime_get_ns(void);
u32 bpf_get_smp_processor_id(void);
struct task_struct *bpf_get_current_task_btf(void);
long bpf_probe_read_kernel_str(void *into, u32 size, const void *from);
long bpf_timer_init(struct bpf_timer *timer, void *map, u64 clock);
long bpf_timer_set_callback(struct bpf_timer *timer, void *callback);
long bpf_timer_start(struct bpf_timer *timer, u64 after_ns, u64 flags);
