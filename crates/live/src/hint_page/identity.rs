//! Who a thread is: the number by which it knows itself, and when it was born.
//!
//! Input: files of /proc. Output: both. A thread in a container has another number there than outside.

/// When a thread was born, in clock ticks since the machine started, from the text of its `stat`.
pub(crate) fn born(stat: &str) -> Option<u64> {
    // A name may hold blanks and parentheses; what follows the last one is numbers.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

/// The number by which a thread knows itself, from the text of its `status`.
fn inner(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// Who a thread is to itself.
pub(crate) fn of(pid: u32, tid: u32) -> Option<(u32, u64)> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).ok();
    Some((inner(&read("status")?)?, born(&read("stat")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_its_number_and_birth() {
        let tid = nix::unistd::gettid().as_raw() as u32;
        let (inner, started) = of(std::process::id(), tid).unwrap();
        assert_eq!(inner, tid);
        assert!(started > 0);
        assert_eq!(super::inner("Name:\tx\nNSpid:\t4711\t12\t3\n"), Some(3));
        assert_eq!(
            born("7 (a) b) R 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 1"),
            Some(987)
        );
        assert_eq!(born("nonsense"), None);
    }
}
