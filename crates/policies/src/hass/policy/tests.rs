//! What a thread expects of a partition, and which exchanges are agreed on.

use countersteer_core::testing::{SMT, topology};

use super::*;

/// Threads on two partitions, with their ratings there and weights; the fast one has so many cores.
fn hass(cores: f64, threads: &[(usize, [f64; 2], f64)]) -> Hass {
    let topology = topology(SMT);
    let params = Params::parse(&super::super::DEF, "priorities=on").unwrap();
    let mut hass = Hass::new(&params, &topology).unwrap();
    hass.margin = 0.05;
    hass.partitions[0].cores = cores;
    for (row, (home, ratings, weight)) in threads.iter().enumerate() {
        let id = ThreadId::from_index(row);
        let member = Member {
            home: usize::MAX,
            signature: None,
            ratings: ratings.to_vec(),
            slowest_s: 1e-9,
            weight: *weight,
            looked_s: 0.0,
            active: true,
            told: false,
        };
        hass.members.insert(id, member);
        hass.relocate(id, *home);
    }
    hass
}

fn agree(hass: &Hass, one: u32, other: u32) -> bool {
    let id = ThreadId(one);
    hass.agree(id, &hass.members[&id], ThreadId(other))
}

#[test]
fn what_a_thread_expects_is_its_rating_times_its_share_of_a_core() {
    let threads = [
        (0, [2.0, 1.0], 1.0),
        (0, [2.0, 1.0], 3.0),
        (1, [3.0, 1.0], 1.0),
    ];
    let mut hass = hass(2.0, &threads);
    let expected = |hass: &Hass, row: u32| hass.expected(&hass.members[&ThreadId(row)], 0);
    assert_eq!(expected(&hass, 0), 2.0 * 2.0 * 1.0 / 4.0);
    assert_eq!(expected(&hass, 1), 2.0, "no more than a core");
    assert_eq!(expected(&hass, 2), 3.0 * (2.0 / 5.0), "itself counted");
    hass.relocate(ThreadId(2), 0);
    assert_eq!(expected(&hass, 2), 3.0 * (2.0 / 5.0), "once");
    hass.relocate(ThreadId(1), 1);
    assert_eq!(expected(&hass, 0), 2.0);
}

#[test]
fn equals_change_places_where_the_sum_gains_more_than_the_margin() {
    // Exchanging gains what the slow one has more to win: .2 of a present sum of 3.0, and .1.
    let gains = hass(1.0, &[(1, [2.2, 1.0], 1.0), (0, [2.0, 1.0], 1.0)]);
    assert!(agree(&gains, 0, 1));
    let small = hass(1.0, &[(1, [2.1, 1.0], 1.0), (0, [2.0, 1.0], 1.0)]);
    assert!(!agree(&small, 0, 1));
    let loses = hass(1.0, &[(1, [1.5, 1.0], 1.0), (0, [2.0, 1.0], 1.0)]);
    assert!(!agree(&loses, 0, 1));
    assert!(!agree(&gains, 0, 7), "there is no such thread");
}

#[test]
fn the_heavier_takes_a_place_and_the_lighter_may_not_push_it_out() {
    let threads = [(1, [1.5, 1.0], 3.0), (0, [2.0, 1.0], 1.0)];
    assert!(agree(&hass(1.0, &threads), 0, 1), "it gains itself");
    let threads = [(1, [9.0, 1.0], 1.0), (0, [1.5, 1.0], 3.0)];
    assert!(!agree(&hass(1.0, &threads), 0, 1), "the heavier would lose");
    let threads = [(1, [9.0, 1.0], 1.0), (0, [1.0, 1.2], 3.0)];
    assert!(agree(&hass(1.0, &threads), 0, 1), "the heavier gains too");
}
