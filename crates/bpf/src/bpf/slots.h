/* SPDX-License-Identifier: GPL-2.0 */
/* Slots of threads, by thread. */
#pragma once

/* By the address of a thread in the kernel: its slot. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} followed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

static __always_inline struct slot *slot_at(u32 slot)
{
	return bpf_map_lookup_elem(&slots, &slot);
}
