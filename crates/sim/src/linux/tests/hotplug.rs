//! CPUs that go offline and online, against closed forms.

use super::*;

fn plug(linux: &mut Linux, topology: &Topology, cpu: u32, online: bool, at_ms: u64) {
    linux.set_online(topology, CpuId(cpu), online, ms(at_ms));
    check(linux);
}

#[test]
fn threads_leave_an_offline_cpu_and_come_back() {
    let topology = symmetric(4, 1, 1, 1);
    let mut linux = busy(&topology, 4, seeded(1));
    linux.advance(ms(1_000));
    plug(&mut linux, &topology, 3, false, 1_000);
    let ran = shares(&mut linux, 4, ms(11_000));
    // Four threads share three CPUs.
    assert!((ran.iter().sum::<f64>() - 30_000.0).abs() < 1.0);
    assert!(ran.iter().all(|r| (r - 7_500.0).abs() < 300.0), "{ran:?}");
    assert_eq!(linux.running(CpuId(3)), None);
    plug(&mut linux, &topology, 3, true, 11_000);
    linux.advance(ms(11_100));
    let ran = shares(&mut linux, 4, ms(12_100));
    assert!(ran.iter().all(|r| (r - 1_000.0).abs() < 1.0), "{ran:?}");
}

#[test]
fn a_mask_without_online_cpus_is_given_up() {
    let topology = symmetric(4, 2, 1, 1);
    let mut linux = Linux::new(&topology, seeded(2));
    linux.fork(ThreadId(0), 0, &only("5"), None, Nanos(0));
    linux.fork(ThreadId(1), 0, &only("4-5"), None, Nanos(0));
    plug(&mut linux, &topology, 5, false, 100);
    assert_eq!(linux.cpu_of(ThreadId(1)), CpuId(4));
    plug(&mut linux, &topology, 5, true, 200);
    linux.advance(ms(1_000));
    // The second thread still has its mask; the first may run anywhere.
    linux.set_affinity(ThreadId(0), &only("4"), ms(1_000));
    linux.advance(ms(2_000));
    assert_eq!(linux.cpu_of(ThreadId(1)), CpuId(5));
    linux.fork(ThreadId(2), 0, &only("5"), None, ms(2_000));
    plug(&mut linux, &topology, 5, false, 2_001);
    assert_ne!(linux.cpu_of(ThreadId(2)), CpuId(5));
}

#[test]
fn slices_follow_the_number_of_online_cpus() {
    let topology = symmetric(8, 1, 1, 1);
    let mut linux = busy(&topology, 1, seeded(3));
    assert_eq!(linux.base_slice, 2_800_000);
    for cpu in (2..8).rev() {
        plug(&mut linux, &topology, cpu, false, 10 + u64::from(8 - cpu));
    }
    assert_eq!(linux.base_slice, 1_400_000);
    plug(&mut linux, &topology, 1, false, 100);
    plug(&mut linux, &topology, 0, false, 101);
    assert_eq!(linux.running(CpuId(0)), Some(ThreadId(0)), "the last stays");
    assert_eq!(linux.base_slice, 700_000);
}

#[test]
fn domains_are_those_of_the_online_cpus() {
    // Without its four E cores of one module, the machine still has all capacities; without all of them, none differ.
    let topology = machine("i9-12900k-8p8e");
    let mut linux = busy(&topology, 20, seeded(4));
    let asymmetric = linux.domains.asymmetric;
    for cpu in 8..16 {
        plug(&mut linux, &topology, cpu, false, 100 + u64::from(cpu));
    }
    assert!(asymmetric && !linux.domains.asymmetric);
    assert_eq!(linux.domains.node(linux.domains.root).weight(), 8);
    let ran = shares(&mut linux, 20, ms(10_116));
    assert!((ran.iter().sum::<f64>() - 80_000.0).abs() < 50.0);
    for cpu in 8..16 {
        plug(&mut linux, &topology, cpu, true, 10_200 + u64::from(cpu));
    }
    assert!(linux.domains.asymmetric);
}
