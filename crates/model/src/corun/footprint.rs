//! Footprint of a thread: the lines that it touches within a time.
//!
//! A thread that holds c lines gains lines at the rate of its misses in a cache of c lines. The time to a size is thus the integral
//! of 1 / rate over sizes. The simulator knows rates at many sizes, and policies know them between a few.

/// Decrease of the rate from one size to the next, relative to the rate, below which the size grows linearly. A straight line is then
/// accurate to 0.25 % of the distance between both sizes.
const FLAT: f64 = 0.02;

/// Growth from one size to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    /// Time at which the size is reached.
    reached: f64,
    size: f64,
    /// Average growth per unit of time up to the next size.
    slope: f64,
    /// Growth per unit of time at this size.
    rate: f64,
    /// Decrease of the rate per unit of size up to the next size; zero if the decrease is small.
    fall: f64,
}

impl Growth {
    /// Row that ends every search for a time.
    const END: Self = Self {
        reached: f64::INFINITY,
        size: 0.0,
        slope: 0.0,
        rate: 0.0,
        fall: 0.0,
    };

    /// Returns the size some time after this one was reached, and the growth per unit of time then.
    ///
    /// If the rate falls, dc/dt = rate - fall (c - size), so that the size approaches its end exponentially. A working set that
    /// just fits is complete long before a straight line would reach the next size.
    #[inline]
    fn after(&self, time: f64) -> (f64, f64) {
        if self.fall == 0.0 {
            return (self.size + time * self.slope, self.slope);
        }
        let rest = (-self.fall * time).exp();
        (
            self.size + self.rate / self.fall * (1.0 - rest),
            self.rate * rest,
        )
    }
}

/// Footprint of a thread: the lines (or bytes) that it touches within a time. Time may be counted in instructions.
///
/// ```
/// use countersteer_model::corun::Footprint;
///
/// // The first 100 lines at 1 line per ns, the next 100 at half of that, then none.
/// let footprint = Footprint::new([100.0, 200.0], [1.0, 0.5], 0.0);
/// assert_eq!([50.0, 200.0, 1e6].map(|ns| footprint.after(ns)), [50.0, 150.0, 200.0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    rows: Vec<Growth>,
    greatest: f64,
}

impl Footprint {
    /// Creates the footprint of a thread that grows to each of the ascending sizes at its rate, and `beyond` the last one at that
    /// rate. A size with rate 0 is never reached.
    #[must_use]
    pub fn new<const N: usize>(sizes: [f64; N], rates: [f64; N], beyond: f64) -> Self {
        let mut rows = Vec::with_capacity(N + 1);
        let (mut reached, mut from) = (0.0, 0.0);
        for (nth, (size, rate)) in sizes.into_iter().zip(rates).enumerate() {
            reached += (size - from) / rate;
            from = size;
            rows.push(Growth {
                reached,
                size,
                slope: rates.get(nth + 1).copied().unwrap_or(beyond),
                ..Growth::default()
            });
        }
        rows.push(Growth::END);
        Self {
            rows,
            greatest: f64::INFINITY,
        }
    }

    /// Creates the footprint of a thread from its rates at ascending sizes, none of which is 0.
    ///
    /// Rates are constant up to the first size and linear between sizes. The footprint grows to the size `greatest` at most, which is
    /// not beyond the last one.
    #[must_use]
    pub fn of_rates(rates: impl IntoIterator<Item = (f64, f64)>, greatest: f64) -> Self {
        let mut rates = rates.into_iter();
        let mut rows = Vec::with_capacity(rates.size_hint().0);
        let (mut size, mut rate) = rates.next().unwrap_or((0.0, 1.0));
        let mut reached = size / rate;
        for (next_size, next_rate) in rates {
            let width = next_size - size;
            let mean = mean_inverse(rate, next_rate);
            rows.push(Growth {
                reached,
                size,
                slope: 1.0 / mean,
                rate,
                fall: if rate - next_rate > FLAT * rate {
                    (rate - next_rate) / width
                } else {
                    0.0
                },
            });
            reached += width * mean;
            (size, rate) = (next_size, next_rate);
        }
        rows.push(Growth::END);
        Self { rows, greatest }
    }

    /// Returns the size after a time.
    #[must_use]
    pub fn after(&self, time: f64) -> f64 {
        let above = self.rows.partition_point(|row| row.reached <= time);
        self.on_row(above.saturating_sub(1), time).0
    }

    /// Returns the size after a time, and its derivative. `hint` is the row of the last result.
    #[inline]
    pub fn after_near(&self, time: f64, hint: &mut u32) -> (f64, f64) {
        let rows = &self.rows[..];
        let mut i = (*hint as usize).min(rows.len() - 2);
        while rows[i + 1].reached <= time {
            i += 1;
        }
        while i > 0 && rows[i].reached > time {
            i -= 1;
        }
        *hint = i as u32;
        self.on_row(i, time)
    }

    /// Returns the size after a time that follows this row, and its derivative.
    #[inline]
    fn on_row(&self, row: usize, time: f64) -> (f64, f64) {
        let row = self.rows[row];
        if time < row.reached {
            // Below the first size, the rate is constant.
            let slope = row.size / row.reached;
            return (time * slope, slope);
        }
        let (size, slope) = row.after(time - row.reached);
        if size >= self.greatest {
            (self.greatest, 0.0)
        } else {
            (size, slope)
        }
    }
}

/// Returns the mean of 1/y over an interval in which y falls linearly from `y0` to `y1`; the limit if both are equal.
fn mean_inverse(y0: f64, y1: f64) -> f64 {
    if (y0 - y1) > 1e-6 * y0 {
        (y0 / y1).ln() / (y0 - y1)
    } else {
        2.0 / (y0 + y1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footprints_end_where_nothing_misses() {
        let footprint = Footprint::new([10.0, 20.0, 30.0], [1.0, 0.0, 0.0], 0.0);
        assert_eq!(
            [5.0, 10.0, 1e9].map(|time| footprint.after(time)),
            [5.0, 10.0, 10.0]
        );
        let stream = Footprint::new([10.0, 20.0], [1.0, 1.0], 0.5);
        assert_eq!(stream.after(40.0), 30.0);
        let nothing = Footprint::new([10.0, 20.0], [0.0, 0.0], 0.0);
        assert_eq!(nothing.after(1e9), 0.0);
    }

    /// Sizes from 64 to `most`, eight per octave, with `rate`.
    fn grid(most: f64, rate: impl Fn(f64) -> f64) -> Footprint {
        let sizes = (0..).map(|nth| 64.0 * (f64::from(nth) / 8.0).exp2());
        let sizes = sizes.take_while(|size| *size < 1.2 * most);
        Footprint::of_rates(sizes.map(|size| (size, rate(size).max(1e-9))), most)
    }

    #[test]
    fn a_working_set_fills_as_its_differential_equation_says() {
        // dc/dt = m (1 - c/K) from 64 on, and K is on the grid: 1 - exp(-m t/K) of the rest, after 64 lines at the rate there.
        let (m, working_set) = (0.01, 4_096.0);
        let footprint = grid(10_000.0, |c| m * (1.0 - c / working_set));
        let rest = working_set - 64.0;
        let start = 64.0 / (m * rest / working_set);
        let mut hint = 0;
        for part in [0.5f64, 0.99, 0.999, 0.9] {
            let time = start - (1.0 - part).ln() * working_set / m;
            let (size, slope) = footprint.after_near(time, &mut hint);
            assert!(
                (size - 64.0 - part * rest).abs() < 1e-6 * rest,
                "{part} {size}"
            );
            assert!((slope / (m * (1.0 - part) * rest / working_set) - 1.0).abs() < 1e-3);
            assert_eq!(footprint.after(time), size, "with and without a hint");
        }
        assert_eq!(footprint.after(0.5 * start), 32.0);
    }

    #[test]
    fn a_footprint_ends_at_the_greatest_size() {
        let footprint = grid(1_000.0, |_| 0.01);
        assert_eq!(footprint.after_near(1e15, &mut 0), (1_000.0, 0.0));
        assert!((footprint.after(5e4) / 500.0 - 1.0).abs() < 1e-9);
    }
}
