//! Instrumentation plugin for qemu-user from 7.2 on (TCG plugin API version 1 and later).
//!
//! Stage: first of `steer profile`. Input: the instructions and data addresses of every thread of the program, from QEMU.
//! Output: raw window records in files mapped shared (`layout`), which `countersteer-profiler` turns into a profile.
//!
//! Per block executed: instruction counts and the branch predictor. Per data access: the LRU stack distance (to within 64
//! lines) and the reuse time of its line. Every million instructions or so, a sequence is captured
//! instruction by instruction and analysed for the parallelism that its data dependencies allow, the units that its operations
//! need, and the time that its mispredicted branches take to be resolved.

//! For traced simulation it does less: [`live`] threads only send what they execute.

#![cfg_attr(test, allow(dead_code))]

mod block;
mod branches;
mod capture;
mod caveats;
mod conflicts;
mod decode;
mod flow;
mod guest;
#[path = "../../profiler/src/layout.rs"]
#[allow(dead_code)]
mod layout;
mod lines;
mod live;
mod mapping;
mod memo;
mod near;
mod output;
mod recency;
mod resolution;
mod shared;
mod stamps;
mod stream;
mod streams;
mod tage;
mod targets;
mod vcpu;

// Test binaries cannot link QEMU's symbols; everything that needs them is here.
#[cfg(not(test))]
mod exec;
#[cfg(not(test))]
mod ffi;
#[cfg(not(test))]
mod live_plugin;
#[cfg(not(test))]
mod plugin;
#[cfg(not(test))]
mod translation;
