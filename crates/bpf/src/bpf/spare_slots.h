/* SPDX-License-Identifier: GPL-2.0 */
/* Slots that were given back, for programs that give them out. */
#pragma once

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(u32));
} spare SEC(".maps");
