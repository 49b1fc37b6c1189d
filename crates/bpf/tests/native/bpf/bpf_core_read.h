/* SPDX-License-Identifier: GPL-2.0 */
/* Stands in the place of libbpf's header: there is nothing to relocate. */
#pragma once
