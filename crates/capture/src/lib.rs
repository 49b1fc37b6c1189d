//! Instrumentation plugin for qemu-user from 7.2 on (TCG plugin API version 1 and later).
//!
//! Stage: first of `steer profile`. Input: the instructions and data addresses of every thread of the program, from QEMU.
//! Output: raw window records in shared file mappings (`layout`), which `countersteer-profiler` turns into a profile.
//!
//! For each executed block, the plugin counts instructions and runs the branch predictor. For each data access, it measures the
//! LRU stack distance (to within 64 lines) and the reuse time of its line. About once per million instructions, it captures a
//! sequence of instructions. The analysis gives the parallelism that data dependencies allow, the execution units needed, and
//! the resolution time of mispredicted branches.

//! For traced simulation the plugin does less: `live` threads only send their events.

#![cfg_attr(test, allow(dead_code))]
#![warn(clippy::print_stderr)]

mod action;
mod block;
mod branches;
mod capture;
mod caveats;
mod conflicts;
mod decode;
mod flow;
mod guest;
mod lines;
mod live;
mod log;
mod mapping;
mod memo;
mod near;
mod output;
mod reach;
mod recency;
mod resolution;
mod sample;
mod shared;
mod sharing;
mod simple;
mod stamps;
mod stream;
mod streams;
mod tage;
mod targets;
mod vcpu;

use countersteer_cache::layout;

// Test binaries cannot link QEMU's symbols, so all code that needs them is here.
#[cfg(not(test))]
mod exec;
#[cfg(not(test))]
mod ffi;
#[cfg(not(test))]
mod observers;
#[cfg(not(test))]
mod plugin;
#[cfg(not(test))]
mod threads;
#[cfg(not(test))]
mod translation;
