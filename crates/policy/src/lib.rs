//! The interface for authors of policies, and a simulator to try a policy in a test.
//!
//! A policy needs no other crate of the project. `countersteer_cli::steer` makes a program of it that has all commands of
//! `steer`.
//!
//! ```
//! use countersteer_policy::placement::{Placement, Reason, Target, ThreadPlacement};
//! use countersteer_policy::policy::{Needs, Policy, PolicyDef, PolicyRng, View};
//! use countersteer_policy::synthetic::{self, compute, streaming};
//! use countersteer_policy::topology::GroupBy;
//! use countersteer_policy::{Machine, Tryout};
//!
//! static QUIET_FIRST: PolicyDef = PolicyDef {
//!     name: "quiet-first",
//!     summary: "the fastest cores for threads with few cache misses",
//!     source: "an example",
//!     params: &[],
//!     make: |_, _| Ok(Box::new(QuietFirst(Needs::metrics(&["llc_mpki"])))),
//! };
//!
//! struct QuietFirst(Needs);
//!
//! impl Policy for QuietFirst {
//!     fn needs(&self) -> &Needs {
//!         &self.0
//!     }
//!
//!     fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
//!         let types = view.topology.groups_by(GroupBy::CoreType);
//!         let place = |thread: &countersteer_policy::engine::ThreadInfo| {
//!             let mpki = view.metric(thread.id, "llc_mpki")?;
//!             let group = if mpki < 1.0 { types.first() } else { types.last() }?;
//!             let reason = Reason::rule("by its misses").saw("llc_mpki", Some(mpki));
//!             Some(ThreadPlacement::new(thread.id, Target::Group(group.id), reason))
//!         };
//!         Placement { threads: view.threads.iter().filter_map(place).collect(), ..Placement::default() }
//!     }
//! }
//!
//! # let text = include_str!("../../../machines/quickia-2b-2s.toml");
//! let machine = Machine::parse("quickia-2b-2s.toml", text)?;
//! let mut tryout = Tryout::on(&machine);
//! for nth in 0..2 {
//!     tryout = tryout
//!         .program(synthetic::profile(&format!("computes-{nth}"), &[(compute(), 1_000_000_000)]))
//!         .program(synthetic::profile(&format!("streams-{nth}"), &[(streaming(), 500_000_000)]));
//! }
//! let gain = tryout.run(&QUIET_FIRST, "")?.stp / tryout.linux()?.stp;
//! assert!(gain > 1.0, "{gain}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod tryout;

pub use countersteer_model::machine::Machine;
pub use countersteer_model::profile::Profile;
pub use countersteer_model::score::Score;
pub use countersteer_model::{
    counters, cpuset, engine, hint, metric, placement, policy, sample, topology, units, usage,
};
pub use countersteer_sim::progress::synthetic;
pub use tryout::{Tryout, TryoutError};
