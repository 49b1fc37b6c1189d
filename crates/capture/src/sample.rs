//! Sample of lines, branches and pages.
//!
//! Input: an item. Output: true if a sampled recording keeps it. One item of each group of neighbours is kept, so a contiguous area has
//! the same share everywhere. The item is chosen by a hash of the group (Waldspurger et al., Efficient MRC construction with SHARDS,
//! FAST 2015).

/// Lines of data or code, and branches, of which one is kept.
pub const LINES: u64 = 8;
/// Pages of which one is kept. Programs have fewer of them.
pub const PAGES: u64 = 4;

/// True if an item is kept where one in `one_in`, a power of two, is.
#[inline(always)]
pub fn keeps(item: u64, one_in: u64) -> bool {
    hash(item, one_in) >> (u64::BITS - one_in.ilog2()) == item % one_in
}

/// Returns a hash of an item's group.
#[inline(always)]
pub fn hash(item: u64, one_in: u64) -> u64 {
    (item / one_in).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the estimated distance in items if `distance` kept items lie in between.
#[inline(always)]
pub fn scaled(distance: u64, one_in: u64) -> u64 {
    distance * one_in + one_in / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_one_kept_item_at_any_of_its_places() {
        for one_in in [PAGES, LINES] {
            let mut places = vec![0; one_in as usize];
            for group in 0..8000 {
                let items = group * one_in..(group + 1) * one_in;
                let kept: Vec<u64> = items.filter(|item| keeps(*item, one_in)).collect();
                assert_eq!(kept.len(), 1);
                places[(kept[0] % one_in) as usize] += 1;
            }
            let even = 8000 / one_in as usize;
            assert!(
                places.iter().all(|n: &usize| n.abs_diff(even) < even / 10),
                "{places:?}"
            );
        }
    }
}
