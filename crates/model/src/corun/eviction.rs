//! Eviction age of a shared cache: the age at which the footprints of its threads fill it.

/// Search for the eviction age of a cache: Newton's method, and halving on a logarithmic scale where that does not apply.
#[derive(Clone, Copy, Debug)]
pub struct EvictionAge {
    /// Least and greatest age. The greatest stands for a cache without pressure.
    pub range: (f64, f64),
    /// Limit on the number of ages at which footprints are summed.
    pub steps: usize,
    /// Difference between the sum of footprints and the capacity, relative to the latter, at which the search ends earlier.
    pub near: f64,
    /// Distance between an age that is too great and one that is not, below which the search ends earlier.
    pub apart: f64,
}

impl EvictionAge {
    /// Returns the age at which `filled` reaches the capacity of the cache; the greatest age if it does not.
    ///
    /// `filled` returns the sum of the footprints by age, and its derivative. The first age is `start`. Without a derivative the range
    /// is halved, and `start` should be the greatest age, since halving only comes near to it.
    ///
    /// The last step of the search may be linear: then the result is an age for which `filled` was not called. At the limit of
    /// steps, the result is the greatest of the ages so far at which the footprints fit.
    ///
    /// ```
    /// use countersteer_model::corun::EvictionAge;
    ///
    /// let search = EvictionAge { range: (1.0, 1e6), steps: 20, near: 1e-4, apart: 0.0 };
    /// // Two threads touch 3 lines and 1 line per ns: 1,000 ns fill 4,000 lines.
    /// let age = search.of(4000.0, 1.0, |ns| (3.0 * ns + ns, Some(4.0)));
    /// assert!((age / 1000.0 - 1.0).abs() < 1e-3);
    /// ```
    #[inline]
    pub fn of(
        &self,
        capacity: f64,
        start: f64,
        mut filled: impl FnMut(f64) -> (f64, Option<f64>),
    ) -> f64 {
        let greatest = self.range.1;
        let (mut low, mut high) = self.range;
        let mut age = start;
        for _ in 0..self.steps {
            let (sum, slope) = filled(age);
            let over = sum - capacity;
            if over < 0.0 && age >= greatest {
                return age;
            }
            if over > 0.0 {
                high = age
            } else {
                low = age
            }
            let newton = slope.map_or(f64::NAN, |slope| age - over / slope);
            let inside = newton > low && newton < high;
            let is_flat = slope.is_some_and(|slope| slope <= 0.0);
            let ends = inside || is_flat || slope.is_none();
            let is_near = ends && over.abs() <= self.near * capacity;
            if is_near || high - low < self.apart {
                return if inside { newton } else { age };
            }
            // If Newton's step points beyond the greatest age, this age is tried at once.
            let beyond = over < 0.0 && high >= greatest && (newton >= greatest || is_flat);
            age = if inside {
                newton
            } else if beyond {
                greatest
            } else {
                (low * high).sqrt()
            };
        }
        low
    }
}

/// Returns the run time within the last `age`, and its derivative with respect to `age`.
///
/// The thread ran during all of the last `interval`, and for the fraction `duty` of the time before.
#[inline]
#[must_use]
pub fn ran_within(age: f64, interval: f64, duty: f64) -> (f64, f64) {
    if age <= 0.0 {
        (0.0, 0.0)
    } else if age < interval {
        (age, 1.0)
    } else {
        (interval + duty * (age - interval), duty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: EvictionAge = EvictionAge {
        range: (1.0, 100.0),
        steps: 30,
        near: 0.0,
        apart: 0.0,
    };

    #[test]
    fn a_cache_with_room_evicts_at_the_greatest_age() {
        for slope in [None, Some(1.0)] {
            let of = |capacity: f64, start: f64| SEARCH.of(capacity, start, |age| (age, slope));
            for start in [1.0, 10.0, 100.0] {
                assert!(
                    (of(1e3, start) / 100.0 - 1.0).abs() < 1e-6,
                    "{slope:?} {start}"
                );
                assert!((of(50.0, start) / 50.0 - 1.0).abs() < 1e-6);
            }
            assert_eq!(of(1e3, 100.0), 100.0);
        }
    }

    #[test]
    fn a_slope_saves_steps_and_gives_the_age_of_the_closed_form() {
        // Footprints that saturate: K t / (t + h) = C at t = h C / (K - C).
        let (saturated, half) = (1000.0, 40.0);
        let search = EvictionAge {
            range: (1.0, 1e9),
            near: 1e-6,
            steps: 64,
            apart: 0.0,
        };
        let of = |capacity: f64, start: f64, sloped: bool| {
            let mut steps = 0;
            let age = search.of(capacity, start, |age| {
                steps += 1;
                let slope = saturated * half / (age + half).powi(2);
                (saturated * age / (age + half), sloped.then_some(slope))
            });
            let exact = half * capacity / (saturated - capacity);
            assert!(
                (age / exact - 1.0).abs() < 1e-4,
                "{capacity} {start}: {age}"
            );
            steps
        };
        for capacity in [100.0, 500.0, 990.0] {
            for start in [1.0, 1e3, 1e9] {
                let (newton, halving) = (of(capacity, start, true), of(capacity, start, false));
                assert!(newton < halving, "{newton} {halving}");
            }
        }
        assert!(of(500.0, 30.0, true) <= 5);
    }

    #[test]
    fn at_the_limit_of_steps_the_footprints_fit() {
        let search = EvictionAge {
            range: (1.0, 256.0),
            steps: 4,
            ..SEARCH
        };
        // 256, 16, 64, 32.
        assert_eq!(search.of(40.0, 256.0, |age| (age, None)), 32.0);
        assert_eq!(search.of(0.5, 256.0, |age| (age, None)), 1.0);
    }

    #[test]
    fn a_step_between_two_ages_ends_the_search() {
        let search = EvictionAge {
            apart: 1.0,
            ..SEARCH
        };
        let mut steps = 0;
        let age = search.of(5.0, 100.0, |age| {
            steps += 1;
            (if age < 70.0 { 0.0 } else { 10.0 }, None)
        });
        assert!((age - 70.0).abs() < 1.0 && steps < 12, "{age} {steps}");
    }

    #[test]
    fn a_thread_that_shares_its_cpu_ran_for_its_part_before_its_slice() {
        let ran = [-1.0, 1.0, 2.0, 6.0].map(|age| ran_within(age, 2.0, 0.25));
        assert_eq!(ran, [(0.0, 0.0), (1.0, 1.0), (2.0, 0.25), (3.0, 0.25)]);
    }
}
