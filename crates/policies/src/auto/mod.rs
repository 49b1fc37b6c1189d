//! `auto`: the policy of the shelf that suits the machine, as long as threads are not slower under it than under Linux.
//!
//! Idea: the kinds of cores and the caches of a machine say which policies can gain there (the ground). The first of them
//! decides. Short blocks under Linux, each between two blocks under the policy, show its gain on this load. A policy under which
//! threads are slower is dropped, and the next one of the ground is tried. If none is left, threads are left to Linux. The
//! reasons in the record say which policy decides, and which gain was measured.
//!
//! | ground | policies |
//! |---|---|
//! | cores alike behind one cache | none |
//! | cores alike, several last-level caches | `joint`, `contention` |
//! | cores alike behind one cache, with SMT | `joint` |
//! | core types differ, cores have SMT | `hsf`, `joint` |
//! | core types differ, no SMT | `joint`, `hsf`; `hsf`, `joint` if caches decide little |
//!
//! Sources: the choice of an algorithm by features of the problem is that of Rice (Advances in Computers 15, 1976). Blocks and
//! intervals are those of trials: Wang and Ramdas (Sequential Analysis 44, 2025).
//!
//! Decided here:
//! - The order on a ground is that of mean gains of random mixes on simulated machines.
//! - Miss curves say which part of the time caches decide: threads would save it with a last-level cache each. Signatures of
//!   programs have curves, known at the start. Other curves are counted while threads run, which takes some seconds. If the
//!   part is small and there are no more threads than CPUs, core types alone decide: `hsf` comes before `joint`. Cores
//!   may also be alike, without SMT, with caches of one size. If the part is next to zero for every thread there, threads are
//!   left to Linux. The choice holds until the load changes. Where a thread has no curve, the reason says so, and the order
//!   stays.
//! - A policy first decides for 16 s after it has confined a thread. Then a block under Linux of `block_ms` follows. The first
//!   quarter of a block is not counted. Threads first go back to the CPUs on which Linux last had them. Linux itself
//!   leaves running threads where they are if no CPU is overloaded.
//! - The gain is the ratio of sums over threads of instructions per second of wall time. Each is relative to the thread's largest
//!   value in the three blocks, so each thread is compared with itself alone. A thread that slept in an interval is left out of
//!   it. A thread that is not in all three blocks is left out of the pair.
//! - The policy is dropped once an interval of 90 %, valid at any time, lies below 0. As long as the mean gain is below -5 %,
//!   blocks follow each other, at most six in a row. Otherwise the time between them doubles from 32 s to 64 s. Phases of
//!   programs change the measured gain by several per cent from block to block. A short run therefore does not show a small loss.
//! - If the number of threads changes by more than a quarter, the evidence is dropped, and the comparison starts over. A minute
//!   after the last policy was dropped, the first one is tried again, after such a change of the number already after 10 s. The
//!   next such wait is twice as long, up to 16 minutes.
//! - Programs enter other phases. If the gain of three blocks in a row is below -5 % although the mean is not, only these
//!   three count from then on. They follow each other at once.
//! - A thread whose affinity mask another program changed is left alone, until its mask is as wide as before.
//! - In blocks under Linux the policy's clock stands still, and it sees no measurements.
//! - With no more runnable threads than last-level caches on alike cores, Linux spreads them as well as can be, and decides
//!   alone.
//!
//! Assumes: instructions are counted; otherwise threads are left to Linux. Loses: to a better policy that the ground does not list
//! first; with phases longer than a block, the evidence takes minutes; by blocks under Linux where the policy gains.

mod curves;
mod ground;
mod masks;
mod policy;
mod speeds;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use policy::DEF;
