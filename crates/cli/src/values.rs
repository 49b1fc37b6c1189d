//! Parsers for values of flags that several commands share.

use countersteer_model::counters::parse_duration;
use countersteer_model::units::Nanos;

/// Parses a time with its unit, e.g. `10ms`.
pub fn time(text: &str) -> Result<Nanos, String> {
    parse_duration(text).map_err(|e| e.message)
}

/// Parses a floating-point number.
pub fn number(text: &str) -> Result<f64, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number"))
}

/// Parses a percentage above 0 and below 100, with or without `%`; returns a fraction.
pub fn percent(text: &str) -> Result<f64, String> {
    let percent = number(text.trim_end_matches('%').trim_end())?;
    if percent > 0.0 && percent < 100.0 {
        Ok(percent / 100.0)
    } else {
        Err("it must be above 0 and below 100".into())
    }
}

/// Parses a process ID.
pub fn pid(text: &str) -> Result<u32, String> {
    let wrong = "it is not a PID; `pgrep NAME` prints the PIDs of a program";
    text.parse().map_err(|_| wrong.to_owned())
}

/// Splits a list of policies, e.g. `linux,hsf:sf=oracle,margin=1,aarr`. A comma separates two policies unless a parameter
/// follows. A parameter is `key=value` without a colon in the key.
pub fn specs(list: &str) -> Vec<String> {
    let mut specs: Vec<String> = Vec::new();
    for part in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let parameter = part
            .split_once('=')
            .is_some_and(|(key, _)| !key.contains(':'));
        match specs.last_mut() {
            Some(last) if parameter => {
                last.push(',');
                last.push_str(part);
            }
            _ => specs.push(part.to_owned()),
        }
    }
    specs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_policies_and_their_parameters() {
        let split = specs("linux, hsf:sf=oracle,margin=0.1,aarr,static:a=llc0,b=llc1");
        assert_eq!(
            split,
            [
                "linux",
                "hsf:sf=oracle,margin=0.1",
                "aarr",
                "static:a=llc0,b=llc1"
            ]
        );
    }
}
