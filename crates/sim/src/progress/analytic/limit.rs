//! Combination of two limits of speed.

/// Returns the cycles per instruction under two limits, both in instructions per cycle.
///
/// The result is a mean of order 3/2: bursts of one limit meet slack of the other. Operations that wait for a port or a slot
/// lengthen their dependence chains. The order was chosen among 4, 2, 3/2 and 6/5. It gave the smallest errors on half of the
/// program families of `bench/silicon.tsv`.
#[inline]
pub fn limit(width: f64, ilp: f64) -> f64 {
    let x = 1.0 / width;
    let y = 1.0 / ilp;
    let sum = x * x.sqrt() + y * y.sqrt();
    (sum * sum).cbrt()
}
