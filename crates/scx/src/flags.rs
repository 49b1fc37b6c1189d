//! Options that the source of a scheduler's user-space half sets in the scheduler's table.

/// Names of options of sched_ext that change what the simulator does.
const OPTIONS: [(&str, u64); 2] = [
    ("SCX_OPS_ENQ_LAST", crate::abi::flags::OPS_ENQ_LAST),
    ("SCX_OPS_ENQ_EXITING", 1 << 2),
];

/// Options that the source of a user-space half sets: those of the statement `..._ops_mut().flags = ...;`.
pub fn flags(source: &str) -> u64 {
    let statements = source.split("_ops_mut()").skip(1);
    let assigned = statements.filter_map(|rest| {
        let rest = rest.trim_start().strip_prefix(".flags")?;
        rest.trim_start().strip_prefix('=')?.split(';').next()
    });
    let of = |text: &str| {
        let named = OPTIONS.iter().filter(|(name, _)| {
            let ends = |rest: &str| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric());
            text.match_indices(name)
                .any(|(at, _)| ends(&text[at + name.len()..]))
        });
        named.fold(0, |flags, (_, flag)| flags | flag)
    };
    assigned.map(of).fold(0, |all, flags| all | flags)
}

#[cfg(test)]
mod tests {
    use super::flags;

    #[test]
    fn options_are_those_of_the_assignment() {
        let source = "skel.struct_ops.x_ops_mut().flags = *compat::SCX_OPS_ENQ_LAST
            | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED; y.x_ops_mut().cpu_release = null();";
        assert_eq!(flags(source), 2);
        assert_eq!(
            flags("a.x_ops_mut().flags = *compat::SCX_OPS_ENQ_LASTING;"),
            0
        );
        assert_eq!(
            flags("a.x_ops_mut().flags |= *compat::SCX_OPS_ENQ_LAST;"),
            0
        );
        assert_eq!(
            flags("a.x_ops_mut().flags = *compat::SCX_OPS_ENQ_EXITING;"),
            4
        );
    }
}
