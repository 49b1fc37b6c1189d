//! Load weights of nice levels, and time scaled by weight.
//!
//! Input: a nice level or a weight. Output: weights, and virtual time from real time. Models `sched_prio_to_weight`
//! (kernel/sched/core.c) and `calc_delta_fair` (kernel/sched/fair.c).

/// Weight of nice 0, which is also the full unit of capacity in PELT.
pub(super) const NICE_0_WEIGHT: u32 = 1024;

/// Weights of the nice levels -20 to 19. Each level changes the weight by about 25 %, which moves about a tenth of a CPU between
/// two equal threads.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// Returns the weight of a nice level, which is clamped to -20 ..= 19.
pub fn of_nice(nice: i8) -> u32 {
    WEIGHTS[(i32::from(nice.clamp(-20, 19)) + 20) as usize]
}

/// Returns the virtual time that an entity of weight `weight` receives for `delta` nanoseconds of running.
pub(super) fn virtual_time(delta: i64, weight: u32) -> i64 {
    if weight == NICE_0_WEIGHT {
        delta
    } else {
        delta * i64::from(NICE_0_WEIGHT) / i64::from(weight)
    }
}

/// Returns the shortest running time in which an entity of weight `weight` receives at least `delta` of virtual time.
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
