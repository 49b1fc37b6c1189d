//! `hass`: architectural signatures, partitions, local decisions.
//!
//! Idea: a signature carried by the program predicts its speed on each class of cores. A thread moves by itself to the
//! partition with the highest expected speed, given the number of threads there. Occasionally it also tries to swap with a
//! random thread of a better partition, if both together would gain.
//!
//! Source: HASS (Shelepov et al., 2009), sections 3 and 4. Each question that its authors left open is an option here:
//! - `shared-cache=on` (section 3 names shared caches as the limit): the cores of a class under one last-level cache are a
//!   partition of their own. Signatures predict how fast each thread fills a cache, and so the part of it that each sharer
//!   holds (footprint composition: Xiang et al., HOTL, ASPLOS 2013) and its misses. Moves and swaps need a total gain over all
//!   threads under the caches concerned, and partners are searched in every other partition. Hits of the last-level cache cost
//!   their latency. Memory latency grows with the bandwidth in use.
//! - `signatures=phase` (section 6): the signature of the present part of the program. A simulation knows each eighth of each
//!   recorded run. On a real machine, and with `signatures=counted` in a simulation too, counters recognize the part: the phase in the
//!   program's signature whose misses of the private caches are nearest to the measured ones, twice in a row. Without counters, or
//!   with a signature that has no phases, it stays that of the whole run, and the reason of the placement says so.
//! - `priorities=on` (section 5): a thread with a lower nice value may take the place of one with a higher one for its own
//!   gain, regardless of the sum; not the other way round. A thread expects its weight's part of an overloaded partition.
//!
//! Decided here: the refresh period, 3 probes, a margin of 2 %, and that a core that becomes idle is filled at the next
//! decision. A thread does not count itself when it searches for partitions with a free core. Otherwise the last one to search
//! would leave its core idle to share a fast one.
//!
//! Assumes: the signature holds for the whole run, or part; misses wait for memory one by one. By default also: caches are not
//! shared; hits of the last-level cache cost nothing. Loses: with shared caches (by default), phases, saturated memory
//! bandwidth, programs that live in a slow last-level cache, and homogeneous work, which has nothing to gain.

mod choice;
mod company;
mod partitions;
mod policy;
mod recognized;

use countersteer_model::policy::{ParamDef, PolicyDef};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "hass",
    summary: "signatures: each thread moves to the partition where its signature promises most",
    source: "HASS, sections 3 and 4",
    params: &[
        ParamDef {
            key: "refresh_ms",
            default: "1000",
            prose: "CPU time in a partition after which a thread looks for a better one, in ms",
        },
        ParamDef {
            key: "probes",
            default: "3",
            prose: "random threads of the best partition that it compares itself with at each refresh; 0: none",
        },
        ParamDef {
            key: "margin",
            default: "0.02",
            prose: "a move must promise more by this fraction",
        },
        ParamDef {
            key: "shared-cache",
            default: "off",
            prose: "on: what the threads under a last-level cache leave each other of it counts, for all of them; off: the last cache that a core has to itself",
        },
        ParamDef {
            key: "signatures",
            default: "program",
            prose: "program: one of the whole run; phase: that of the part of the program that a thread is in, as the simulator knows it or counters tell; counted: as counters tell",
        },
        ParamDef {
            key: "priorities",
            default: "off",
            prose: "on: nice values count; a thread may displace one of lower priority for its own gain alone",
        },
    ],
    make: |params, topology| Ok(Box::new(policy::Hass::new(params, topology)?)),
};
