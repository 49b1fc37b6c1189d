//! `contention`: poison away from the vulnerable, as `capacity+mpi`, by evidence and trials.
//!
//! Idea: of the half of the threads that hold most of the shared caches, those with many misses are poison, the others
//! vulnerable. Poison is packed into as few caches as hold it (two of them on one core, where they never meet); the
//! vulnerable get the other caches together with the threads that hold least; those in between keep the poison company.
//!
//! Source: `capacity+mpi` of CMPSched$im, section 4.3. What is added, and why:
//! - Robbed programs miss as much as poison, and squeezed ones hold little. So the intervals with the least and the most
//!   occupancy are remembered per thread: misses that did not answer to room are poison's, misses that fell are not,
//!   whatever the threshold says. A suspect that never had more room is given some once, to see.
//! - Equal caches and cores are exchanged rather than threads moved. The paper's figures show threads bouncing between
//!   caches.
//! - What classes propose is tried, and so are exchanges of two threads, and what raises the sum of IPC is kept. A trial is
//!   a short comparison in between two short stretches of the present mapping, so that phases are not taken for gains, and
//!   what wins must win twice. Trials go on as long as the threads live, on a budget of lost work (`trials`).
//! - With `ways=split`, poison that is left beside others has few ways, and cannot evict what they hold.
//!
//! Assumes: occupancy, misses and IPC can be read per thread; cores are alike; caches fill within an eighth of an interval.
//! Loses: with phases shorter than that, on unequal cores (it does not see them), and a little all the time, to trials, when
//! no mapping is better than another. On machines with one last-level cache only the pairing on cores is left.

use super::{Contention, EVERY, Mode, WAYS};
use countersteer_core::policy::{ParamDef, PolicyDef};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "contention",
    summary: "cache poison apart from the threads it would hurt, by evidence and trials",
    source: "CMPSched$im, section 4.3",
    params: &[
        EVERY,
        WAYS,
        ParamDef {
            key: "by",
            default: "both",
            prose: "what threads are told apart by: both (occupancy and misses), capacity (occupancy), mpi (misses)",
        },
        ParamDef {
            key: "mpki",
            default: "10",
            prose: "last-level cache misses per kilo-instruction above which a thread that holds much is poison; 8 is the \
                    paper's more aggressive choice",
        },
        ParamDef {
            key: "trials",
            default: "0.5",
            prose: "most of the work, in percent, that trying other mappings may cost, as measured; 0 leaves it to the \
                    classes, as the paper does",
        },
    ],
    make: |params, topology| {
        let mpki = params.number("mpki", 0.0)?;
        let trials = params.number("trials", 0.0)? / 100.0;
        let modes = [
            ("both", Mode::Both { mpki, trials }),
            ("capacity", Mode::Capacity),
            ("mpi", Mode::Mpi),
        ];
        Contention::boxed(params.choice("by", &modes)?, params, topology)
    },
};
