//! `greedy-energy`: one move per slice, if it improves balance, cache sharing or use of the floating-point unit and predicted
//! power allows it.
//!
//! Idea: each slice the policy checks the load of CPUs, which caches have begun to miss more, and which SMT siblings compete
//! for their floating-point unit. It takes the move that lowers predicted power per unit of work most, if it lowers it enough.
//! Idle cores are parked: load that fits on fewer cores is consolidated, so that the others stay in their deepest idle state.
//!
//! Source: "PMU-based energy-efficient thread migration" (the meta-scheduler), sections III and IV for the measurements, V.E
//! for the algorithm. The paper gives no formula for power, no decision rule, no lengths of k, j and the slice, and no
//! tolerance.
//!
//! From the paper:
//! - Utilisation is busy cycles over frequency times slice, with the frequency of the slice.
//! - A cache is contended if the mean miss rate of the last k slices exceeds that of the j slices before by a tolerance. This
//!   is checked at every level: a core's own caches, those that clusters share, the last one.
//! - Sharing is favourable if a program's threads miss less together.
//! - Data sharing between threads is favourable under one cache. With `sharing=lines` it is measured: accesses to lines that another
//!   core modified. Those that cross last-level caches are misses, which a thread that joins the others no longer has.
//! - Affinity is hard.
//! - Threads that are younger than k slices cause no moves.
//!
//! Decided here:
//! - Power of the next slice: `P = static + sum over cores of idle power * (1 - U) + sum over CPUs of a U + b FP + m misses`.
//!   The weights a, b and m per core type come from least squares over the energy charged to the slices' threads, fitted again
//!   every 50 slices. Static and idle power are those of the machine file. If energy is not measured, a is 1 W, b .5 nJ, m the
//!   machine file's energy of a line; reasons state it. If energy is charged to threads by CPU time, as from RAPL, idle power
//!   counts twice and moves gain less than predicted.
//! - Speed: the sum of the threads' CPU shares; threads on one CPU share it evenly. It is less if SMT siblings are busy or
//!   collide at the floating-point unit. It is multiplied by `1 - stalls * change of misses`. Stalls are misses times the
//!   latency of memory. A thread that leaves a contended cache misses less by the tolerance; one that enters it misses more.
//! - Cost is `P / speed^time_weight`. A move must lower it by a quarter of the tolerance, and the next move comes at least k
//!   slices later.
//! - Consolidation, which empties the least used core, is weighed like every move: at `time_weight=1` by energy for the same
//!   work. Busy threads on fewer cores draw less power, but work longer while the rest of the package draws its own, so that it
//!   seldom pays. At `time_weight=0` power alone counts, as in the paper; `least_speed` then bounds what it costs, and the reason
//!   says if energy for the same work rises. As long as energy was never measured, cores are emptied only while the mean
//!   utilisation of those in use is below a half.
//! - Frequencies (`clocks=on`): each operating point of a clock in the machine file is a move. The clock's part of a thread's time
//!   is what stalls leave; a busy CPU's power at a point is that of the file. Where the file has no operating points, or energy
//!   was never measured, no clock is limited. A clock without threads loses its limit. After k slices, a change is undone unless the
//!   cost by measured instructions is lower than before, since misses times latency say little of threads that overlap or
//!   prefetch them; the clock then keeps its frequency for 20 k slices.
//! - A parked core is one without threads. It draws the idle power of its machine file, which is that of its deepest state. The
//!   other cores draw that of a gated clock while they idle, if the file has it. Engines need no command for it.
//!
//! Assumes: the next slice is like the last k. Loses: time, if consolidated load has to share CPUs (the paper's wkld1 took 2.2
//! times as long); on runs of seconds (wkld4). Also if the kernel's balancing would have followed changes faster than k slices,
//! since affinity is hard. It ignores priorities.

mod clocks;
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
            key: "sharing",
            default: "misses",
            prose: "lines: threads share data if they access lines that another core modified (event shared_modified); misses: if they miss less under one cache",
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
            prose: "on: emptying the least used core is among the moves; off: it is not",
        },
        ParamDef {
            key: "clocks",
            default: "off",
            prose: "on: limits on the frequencies of clocks are among the moves, once energy was measured; off: they are not",
        },
        ParamDef {
            key: "least_speed",
            default: "0.7",
            prose: "least predicted speed that emptying a core or slowing a clock leaves, as a share of that with all CPUs at their fastest",
        },
    ],
    make: |params, topology| Ok(Box::new(policy::Greedy::new(params, topology)?)),
};
