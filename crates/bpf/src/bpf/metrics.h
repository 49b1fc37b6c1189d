/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Speed-up factors that are computed in the kernel, by the addresses of threads: the counting programs write them, the
 * scheduler reads them.
 */
#pragma once

/* A thread without room has no factor. */
#define MAX_METRICS 16384

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_METRICS);
	__type(key, u64);
	__type(value, u64);
} metrics SEC(".maps");
