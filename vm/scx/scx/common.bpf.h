/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the test schedulers of crates/scx need of a kernel, so that the sources that run in the simulator are compiled for BPF, too.
 * Offsets are relocated at load time (CO-RE), so only names must be right.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32, __wsum;
typedef __u64 __be64;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define SCX_SLICE_DFL 20000000ULL
#define SCX_DSQ_LOCAL (1ULL << 63 | 2)

struct sched_ext_entity {
	u64 slice, dsq_vtime;
	u32 weight;
} __attribute__((preserve_access_index));
struct task_struct {
	struct sched_ext_entity scx;
} __attribute__((preserve_access_index));
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*enable)(struct task_struct *);
	s32 (*init)(void);
	char name[128];
};

s32 scx_bpf_create_dsq(u64, s32) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *, s32, u64, bool *) __ksym;
void scx_bpf_dsq_insert(struct task_struct *, u64, u64, u64) __ksym;
void scx_bpf_dsq_insert_vtime(struct task_struct *, u64, u64, u64, u64) __ksym;
bool scx_bpf_dsq_move_to_local(u64) __ksym;
/* The first version of the function, which kernels keep, has no flags. */
#define scx_bpf_dsq_move_to_local(id, flags) scx_bpf_dsq_move_to_local(id)

#define BPF_STRUCT_OPS(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)
#define BPF_STRUCT_OPS_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)
#define SCX_OPS_DEFINE(table, ...) SEC(".struct_ops.link") struct sched_ext_ops table = { __VA_ARGS__ };

static inline bool time_before(u64 a, u64 b) { return (s64)(a - b) < 0; }
static inline u64 scale_by_task_weight_inverse(const struct task_struct *p, u64 value) { return value * 100 / p->scx.weight; }
