//! CPUs that a test may use; a container's CPUs need not start at 0.

/// Returns the CPUs on which this process may run.
///
/// # Panics
/// Panics if the kernel does not list them.
#[must_use]
#[allow(clippy::expect_used, reason = "a test that cannot go on has failed")]
pub fn allowed() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    parse(list.unwrap_or_default()).expect("a list of CPUs in /proc/self/status")
}

fn parse(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

/// True if this process may run on these CPUs, and on two or more in total; reports a skipped test otherwise.
pub fn may_use(cpus: &[u32]) -> bool {
    let allowed = allowed();
    let may = allowed.len() > 1 && cpus.iter().all(|cpu| allowed.contains(cpu));
    if !may {
        crate::skipped(format_args!(
            "this needs two CPUs, with {cpus:?} among them (there are {allowed:?})"
        ));
    }
    may
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(parse("\t0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse(""), None);
        assert!(!allowed().is_empty());
    }
}
