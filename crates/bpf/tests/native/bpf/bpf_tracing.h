/* SPDX-License-Identifier: GPL-2.0 */
/* Replaces libbpf's header: a program is an ordinary function. */
#pragma once

#define BPF_PROG(name, args...) name(args)
