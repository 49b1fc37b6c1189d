//! Models of speed-up and energy factors: samples, fits, cross-validation.
//!
//! Input: recorded programs that are simulated, or records of runs. Output: model files, which the policies read. Only this crate
//! needs a library for regression.
pub mod data;
pub mod export;
pub mod fit;
pub mod judge;
pub mod material;
pub mod model;
pub mod moves;
pub mod prim;
pub mod records;
pub mod rows;
pub mod train;
pub mod unseen;
