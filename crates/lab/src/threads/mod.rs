//! Number of threads for a program, and cores for them: candidates, a model of their times, a search by few trials.
//!
//! Input: a topology, and a [`search::CandidateTimer`] that times the program with a candidate. Output: the best candidate, with the
//! predicted and the measured time of each trial. The runner is a real program or a simulated one; the search is one.

pub mod candidates;
mod residual;
pub mod scaling;
pub mod search;
