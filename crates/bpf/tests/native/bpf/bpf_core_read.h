/* SPDX-License-Identifier: GPL-2.0 */
/* Replaces libbpf's header: there is nothing to relocate. */
#pragma once
