//! `joint`: unequal cores and shared caches at once.
//!
//! Idea: what a placement is worth in whole is predicted from counters: how fast each thread is on each kind of core, what it
//! misses with the part of the caches that its neighbours leave it, what memory's load and SMT siblings take. Exchanges of
//! threads that gain more than they cost are made, the best first, until none is left.
//!
//! Sources: the parts are published, their union is this project's. Speed-up factors: PMCTrack, section 4.1. Miss curves from
//! occupancy and misses: PMCTrack, section 4.3.1, after West et al. (SIGOPS OSR 2010). Shares of caches: Xiang et al. (HOTL,
//! ASPLOS 2013). Core and waiting parts of time: interval analysis, Karkhanis and Smith (ISCA 2004).
//!
//! Decided here: a thread's first second of CPU time is Linux's, and it is measured there (`young_ms`). Threads that started
//! together then change places a few times, so that each is measured on each kind of core; that takes an eighth of the CPU time
//! that they are expected to need yet, at most (`explore=off` goes by predicted speed-up factors alone). Where counters predict
//! no factor and a thread was not on each kind of core, nothing is predicted and nothing moved. A change that was made is
//! checked by what the threads then reach: one that lost is undone, and not tried again for a time that doubles. Threads that
//! want a CPU less than half of the time are the kernel's. A program counts once, whatever its number of threads.
//! `objective=fairness` weighs threads by how far they are behind in progress, so that places are taken in turns. `objective=energy` and
//! `edp` are the machine's energy per instruction of all threads, and that times the time: a core that runs something draws its
//! active power, the rest goes with its instructions.
//!
//! Assumes: one program's threads do not wait for each other; memory's bandwidth and latency are about as the machine's file
//! says. Loses: where phases are shorter than a second; where everything is alike, by what exploring costs; to `acfs` in
//! fairness on machines without shared caches.

mod curve;
mod estimate;
mod measure;
mod places;
mod policy;
mod predict;
mod search;
mod visit;

pub(crate) use policy::DEF;
