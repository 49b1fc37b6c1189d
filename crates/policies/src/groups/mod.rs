//! `groups`: core groups of your choice, each with a policy of its own.
//!
//! Idea: the machine is divided, by last-level cache, socket, memory node, core type or lists of CPUs. Each part has its own
//! instance of a policy, with its own parameters, threads and activations, and sees no other CPUs. What does not scale to the
//! whole machine decides about a part, and parts can have different aims.
//!
//! Source: PMCSched, section 3: core groups at a granularity that the user sets, threads of a group kept by affinity, and
//! activations of a plug-in for each group. There one plug-in has all groups.
//!
//! Decided here: CPUs in no group belong to a group that Linux schedules. A new thread joins the group with the fewest threads
//! by CPU among those it may use; ties go to the group in which it is. If groups differ by more than one thread for each CPU
//! of the smaller one, the newest thread of the fuller group changes over. Random numbers are one stream for all groups.
//!
//! Assumes: threads of a group need nothing outside it. A group has CPUs of one core type, or of all: policies of a group with
//! one type do not know how long threads ran on it. Loses: speed that a thread could have elsewhere; simulated forecasts are
//! not available in groups, and thresholds for new threads (`admission`) are not passed on.

mod policy;

use countersteer_model::policy::{ParamDef, PolicyDef};

pub(crate) const DEF: PolicyDef = PolicyDef {
    name: "groups",
    summary: "core groups of your choice, each with a policy of its own",
    source: "PMCSched, section 3 (core groups)",
    params: &[
        ParamDef {
            key: "by",
            default: "llc",
            prose: "llc, node, socket, core-type or machine: the groups, if none is listed",
        },
        ParamDef {
            key: "policy",
            default: "aarr",
            prose: "policy of the groups that are not listed, with its parameters after slashes: hsf/margin=0.1",
        },
        ParamDef {
            key: "*",
            default: "",
            prose: "GROUP=POLICY: GROUP is a core group (`llc1`, `node0`) or a CPU list with `+` for commas (`0-3+8`); with CPU lists the other CPUs are left to Linux",
        },
    ],
    make: |params, topology| Ok(Box::new(policy::GroupsPolicy::new(params, topology)?)),
};
