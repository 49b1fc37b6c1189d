//! Commands with parameters: `{name}` in them is replaced by each value of a scan.
//!
//! Input: words, or a text for a shell; scans. Output: a command for each combination of values.

use crate::error::{FaultKind, failure};

/// Most commands of a scan.
const MOST: usize = 1_000;

/// Parameter with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterScan {
    pub name: String,
    pub values: Vec<String>,
}

/// Command to run, with the values it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedCommand {
    /// Text as a user would type it.
    pub text: String,
    pub words: Vec<String>,
    /// Names and values.
    pub parameters: Vec<(String, String)>,
}

/// Returns the words that run a text: its own if it is one word, else those of a shell.
pub fn words_of(text: &str) -> Vec<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if text.chars().all(plain) && !text.contains('=') {
        return vec![text.to_owned()];
    }
    ["sh", "-c", text].map(str::to_owned).to_vec()
}

impl ParameterScan {
    /// Numbers from `low` to `high`, `step` apart, with as many decimals as the texts have.
    ///
    /// # Errors
    /// No numbers, or too many.
    pub fn range(name: &str, low: &str, high: &str, step: &str) -> anyhow::Result<Self> {
        let number = |text: &str| {
            let parsed = text.parse::<f64>().ok().filter(|n| n.is_finite());
            parsed.ok_or_else(|| failure(FaultKind::Usage, format!("`{text}` is no number")))
        };
        let first = number(low)?;
        let last = number(high)?;
        let by = number(step)?;
        let count = ((last - first) / by + 1e-9).floor() + 1.0;
        if by <= 0.0 || !(1.0..=MOST as f64).contains(&count) {
            let why =
                format!("a scan from {low} to {high} by {step} has no values, or more than {MOST}");
            return Err(failure(FaultKind::Usage, why));
        }
        let decimals = |text: &str| text.split_once('.').map_or(0, |(_, d)| d.len());
        let digits = decimals(low).max(decimals(step));
        let value = |i: usize| format!("{:.digits$}", by.mul_add(i as f64, first));
        Ok(Self {
            name: name.to_owned(),
            values: (0..count as usize).map(value).collect(),
        })
    }

    /// Values separated by commas.
    pub fn list(name: &str, values: &str) -> Self {
        Self {
            name: name.to_owned(),
            values: values.split(',').map(str::to_owned).collect(),
        }
    }
}

/// Replaces `{name}` by its value, for each parameter.
pub fn filled(text: &str, parameters: &[(String, String)]) -> String {
    let replace = |text: String, (name, value): &(String, String)| {
        text.replace(&format!("{{{name}}}"), value)
    };
    parameters.iter().fold(text.to_owned(), replace)
}

/// Returns the command with every combination of values; the first scan changes slowest.
///
/// # Errors
/// A scan that the command does not name, or too many combinations.
pub fn combinations(
    words: &[String],
    scans: &[ParameterScan],
) -> anyhow::Result<Vec<TimedCommand>> {
    let unused = |scan: &&ParameterScan| {
        let named = format!("{{{}}}", scan.name);
        words.iter().all(|word| !word.contains(&named))
    };
    if let Some(scan) = scans.iter().find(unused) {
        let why = format!("the command has no `{{{}}}` to replace", scan.name);
        return Err(failure(FaultKind::Usage, why));
    }
    let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for scan in scans {
        let with = |before: &Vec<(String, String)>| {
            let extended = scan.values.iter().map(|value| {
                let own = (scan.name.clone(), value.clone());
                [&before[..], &[own]].concat()
            });
            extended.collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
        if all.len() > MOST {
            let why = format!("the scans have more than {MOST} combinations");
            return Err(failure(FaultKind::Usage, why));
        }
    }
    let made = all.into_iter().map(|parameters| {
        let words: Vec<String> = words.iter().map(|w| filled(w, &parameters)).collect();
        TimedCommand::new(words, parameters)
    });
    Ok(made.collect())
}

impl TimedCommand {
    /// A single word that is more than a word is for a shell.
    fn new(words: Vec<String>, parameters: Vec<(String, String)>) -> Self {
        match words.as_slice() {
            [text] => Self {
                text: text.clone(),
                words: words_of(text),
                parameters,
            },
            _ => Self {
                text: countersteer_profiler::quoted(&words),
                words,
                parameters,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn scans_have_the_values_that_were_asked_for() {
        let range = |low, high, step| ParameterScan::range("n", low, high, step).map(|s| s.values);
        assert_eq!(range("1", "4", "1").unwrap(), ["1", "2", "3", "4"]);
        assert_eq!(range("0.1", "0.4", "0.1").unwrap().len(), 4);
        assert_eq!(range("0", "1", "0.25").unwrap()[1], "0.25");
        for (low, high, step) in [
            ("4", "1", "1"),
            ("1", "4", "0"),
            ("1", "x", "1"),
            ("0", "1", "1e-9"),
        ] {
            assert!(range(low, high, step).is_err(), "{low} {high} {step}");
        }
    }

    #[test]
    fn every_combination_is_a_command() {
        let scans = [
            ParameterScan::list("a", "x,y"),
            ParameterScan::range("n", "1", "3", "1").unwrap(),
        ];
        let made = combinations(&words("run {a} -t{n}"), &scans).unwrap();
        let texts: Vec<&str> = made.iter().map(|t| t.text.as_str()).collect();
        assert_eq!(texts.len(), 6);
        assert_eq!((texts[0], texts[5]), ("run x -t1", "run y -t3"));
        assert_eq!(made[5].parameters[1], ("n".into(), "3".into()));
        let error = combinations(&words("run {a}"), &scans).unwrap_err();
        assert!(error.to_string().contains("no `{n}`"), "{error}");
    }

    #[test]
    fn one_word_with_blanks_is_for_a_shell() {
        let one = |text: &str| {
            combinations(&[text.to_owned()], &[])
                .unwrap()
                .remove(0)
                .words
        };
        assert_eq!(one("true"), ["true"]);
        assert_eq!(one("sleep 1; true"), ["sh", "-c", "sleep 1; true"]);
        assert_eq!(
            combinations(&words("sleep 1"), &[]).unwrap()[0].words,
            ["sleep", "1"]
        );
    }
}
