/* SPDX-License-Identifier: GPL-2.0 */
/* Seats of threads: who has which, and how one is taken. */
#pragma once

/* By the address of a thread in the kernel: its seat. */
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
	__type(value, struct seat);
} seats SEC(".maps");

static __always_inline struct seat *seat_at(u32 seat)
{
	return bpf_map_lookup_elem(&seats, &seat);
}
