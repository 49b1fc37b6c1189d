//! `greedy-energy`: one move a slice, if balance, cache sharing or use of the floating-point unit gain by it and predicted power allows.
//!
//! Idea: each slice the policy looks at how busy CPUs are, which caches have begun to miss more, and which SMT siblings want their
//! one floating-point unit, and takes the move that lowers predicted power per unit of work most, if any does by enough. Idle cores
//! are parked: load that fits on fewer cores is put together, so that the others stay in their deepest idle state.
//!
//! Source: "PMU-based energy-efficient thread migration" (the meta-scheduler), sections III and IV for what is measured, V.E for the
//! algorithm. The paper gives no formula for power, no rule of decision, no length of k, j and the slice, and no tolerance.
//!
//! From the paper: utilisation is busy cycles over frequency times slice, with the frequency of the slice; a cache is contended where
//! the mean miss rate of the last k slices exceeds that of the j before by a tolerance, looked at at every level (a core's own
//! caches, those that clusters share, the last one); sharing is favourable where a program's threads miss less together;
//! affinity is hard; threads that are younger than k slices cause no moves.
//!
//! Decided here:
//! - Power of the next slice: `P = static + sum over cores of idle power * (1 - U) + sum over CPUs of a U + b FP + m misses`; a, b and m by core
//!   type from least squares over the energy that slices' threads were charged with, fitted again every 50 slices; static and idle
//!   power of the machine file. Where energy is not measured a is 1 W, b .5 nJ, m the machine file's energy of a line, and reasons say so.
//!   Where energy is charged to threads by time on CPUs, as from RAPL, idle power counts twice and moves gain less than predicted.
//! - Speed: the sum over threads of their CPU share, threads on one CPU sharing it evenly; less where SMT siblings are busy or collide at
//!   the floating-point unit; times `1 - stalls * change of misses`. Stalls are misses times the latency of memory. A
//!   thread that leaves a contended cache misses less by the tolerance, one that comes to it more.
//! - Cost is `P / speed^time_weight`; a move must lower it by a quarter of the tolerance, and none follows within k slices.
//! - Cores are emptied only while the mean utilisation of those in use is below a half, whatever `time_weight` says: busy threads that
//!   are put together do the same work later at more energy, as long as idle cores draw anything.
//! - A parked core is one without threads. It draws the idle power of its machine file, which is that of its deepest state, and others
//!   that of a gated clock while they idle, where the file has that: engines need not be asked for anything.
//!
//! Assumes: the next slice is like the last k. Loses: time, where load that is put together has to take turns (the paper's wkld1 took 2.2
//! times as long), on runs of seconds (wkld4), and where the kernel's balancing would have followed changes that are faster than k
//! slices, since affinity is hard. It ignores priorities.

mod history;
mod model;
mod moves;
mod policy;
mod power;

use countersteer_model::policy::{ParamDef, PolicyDef};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "greedy-energy",
    summary: "one move a slice where balance, caches or floating-point units gain and predicted power per work falls; idle cores are parked",
    source: "PMU-based energy-efficient thread migration (meta-scheduler), sections III to V.E",
    params: &[
        ParamDef {
            key: "slice_ms",
            default: "100",
            prose: "time between decisions, in ms",
        },
        ParamDef {
            key: "k",
            default: "5",
            prose: "latest slices that count, and slices without another move after one",
        },
        ParamDef {
            key: "j",
            default: "5",
            prose: "slices before those, with which their cache misses are compared",
        },
        ParamDef {
            key: "tolerance",
            default: "0.2",
            prose: "rise of a cache's miss rate that is contention, and fall that is favourable sharing; a quarter of it is the least gain of a move",
        },
        ParamDef {
            key: "fp_high",
            default: "0.25",
            prose: "share of the floating-point unit's peak above which a thread wants a unit of its own",
        },
        ParamDef {
            key: "time_weight",
            default: "1",
            prose: "exponent of speed in the cost, power / speed^time_weight: 1 is energy per work, 2 energy-delay product, 0 power alone",
        },
        ParamDef {
            key: "park",
            default: "on",
            prose: "on: while mean utilisation is below a half, emptying the least used core is among the moves; off: it is not",
        },
    ],
    make: |params, topology| Ok(Box::new(policy::Greedy::new(params, topology)?)),
};
