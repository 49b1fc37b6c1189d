//! Two limits of speed at once.

/// Cycles per instruction under two limits in instructions per cycle.
///
/// A mean of order 3/2: bursts of one limit meet slack of the other, and what waits for a port or a slot
/// lengthens the dependences it is part of. The order is fitted: of 4, 2, 3/2 and 6/5, the one that brought programs of half
/// of the families of `bench/silicon.tsv` closest to measured speeds.
#[inline]
pub fn limit(width: f64, ilp: f64) -> f64 {
    let x = 1.0 / width;
    let y = 1.0 / ilp;
    let sum = x * x.sqrt() + y * y.sqrt();
    (sum * sum).cbrt()
}
