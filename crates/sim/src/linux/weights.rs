//! Nice levels to load weights, and time scaled by weight.
//!
//! Input: a nice level or a weight. Output: weights, and virtual time from real time. Models the kernel's
//! `sched_prio_to_weight` and `calc_delta_fair`.

/// The weight of nice 0; also what PELT calls a full unit of capacity.
pub(super) const NICE_0_WEIGHT: u32 = 1024;

/// Each step of nice is worth about 25 % of weight, so that one level moves a tenth of a CPU between two equals.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of a nice level; levels beyond -20 ..= 19 are clamped.
pub(super) fn of_nice(nice: i8) -> u32 {
    WEIGHTS[(i32::from(nice.clamp(-20, 19)) + 20) as usize]
}

/// Virtual time that `delta` of running adds for an entity of weight `weight`.
pub(super) fn virtual_time(delta: i64, weight: u32) -> i64 {
    if weight == NICE_0_WEIGHT {
        delta
    } else {
        delta * i64::from(NICE_0_WEIGHT) / i64::from(weight)
    }
}

/// Running time after which at least `delta` of virtual time has passed.
pub(super) fn real_time(delta: i64, weight: u32) -> i64 {
    if weight == NICE_0_WEIGHT {
        delta
    } else {
        (delta * i64::from(weight) + i64::from(NICE_0_WEIGHT - 1)) / i64::from(NICE_0_WEIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_level_is_worth_a_quarter() {
        for pair in WEIGHTS.windows(2) {
            let ratio = f64::from(pair[0]) / f64::from(pair[1]);
            assert!((1.14..1.30).contains(&ratio), "{pair:?}");
        }
        assert_eq!(of_nice(0), NICE_0_WEIGHT);
        assert_eq!((of_nice(-100), of_nice(100)), (88761, 15));
    }

    #[test]
    fn real_time_undoes_virtual_time() {
        for weight in WEIGHTS {
            for v in [1, 999, 700_000, 4_000_000] {
                assert!(virtual_time(real_time(v, weight), weight) >= v);
            }
        }
    }
}
