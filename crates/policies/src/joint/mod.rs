//! `joint`: unequal cores and shared caches at once.
//!
//! Idea: counters predict the whole value of a placement. Predictions cover the speed of each thread on each kind of core, and
//! its misses in the cache space that co-runners leave. They also cover memory's load and SMT siblings. Exchanges of threads
//! that gain more than they cost are made, the best first, until none is left.
//!
//! Sources: the parts are published, their union is this project's. Speed-up factors: PMCTrack, section 4.1. Miss curves from
//! occupancy and misses: PMCTrack, section 4.3.1, after West et al. (SIGOPS OSR 2010). Shares of caches: Xiang et al. (HOTL,
//! ASPLOS 2013). Core and waiting parts of time: interval analysis, Karkhanis and Smith (ISCA 2004).
//!
//! Decided here:
//! - A thread's first second of CPU time is left to Linux, and the thread is measured meanwhile (`young_ms`).
//! - Threads that started together then change places a few times, so that each is measured on each kind of core. That takes at
//!   most an eighth of the CPU time that they are expected to need (`explore=off` uses only predicted speed-up factors).
//! - If counters predict no factor and a thread has not run on each kind of core, nothing is predicted and nothing moved.
//! - A change is checked by the speeds that the threads then reach. A change that lost is undone, and not tried again for a
//!   time that doubles.
//! - Threads that sleep much of the time are left to the kernel, which chooses a core at each wakeup.
//! - A program counts once, whatever its number of threads.
//! - `objective=fairness` weighs threads by their lag in progress, so that they alternate on the fast places.
//! - With `ways=on`, the ways of a last-level cache are divided among clusters of its threads where that is predicted to pay. Clusters
//!   are those of LFOC, as in `clusters`, but predicted; a division that loses is undone.
//! - `objective=energy` is the machine's energy per instruction of all threads; `edp` is that times the time. A core that runs
//!   a thread draws its active power; the rest is proportional to its instructions.
//!
//! Assumes: one program's threads do not wait for each other; memory's bandwidth and latency are about those of the machine
//! file. Loses: if phases are shorter than a second; on uniform machines and work, by the cost of exploration; to `acfs` in
//! fairness on machines without shared caches.

pub(crate) mod curve;
mod estimate;
mod measure;
mod places;
mod policy;
mod predict;
mod search;
mod visit;
mod ways;

pub(crate) use policy::DEF;
