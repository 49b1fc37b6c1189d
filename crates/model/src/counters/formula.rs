//! Formulas over events, such as `1000 * llc_misses / instructions`.
//!
//! Input: text. Output: a checked [`Formula`] that can be evaluated over counts. The result is unavailable if a value is
//! missing. Times are in seconds, energies in joules, everything else in events. Adding seconds to events is an error.

use std::fmt;

use super::syntax::{SpecError, SyntaxCursor};

/// Dimension of a quantity: the exponents of events, seconds, joules, bytes and degrees Celsius.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dimension([i8; 5]);

/// Names of the base dimensions.
const BASES: [&str; 5] = ["event", "s", "J", "B", "°C"];

impl Dimension {
    pub const NONE: Self = Self([0; 5]);
    pub const EVENTS: Self = Self([1, 0, 0, 0, 0]);
    pub const SECONDS: Self = Self([0, 1, 0, 0, 0]);

    /// Returns the dimension of a unit as sysfs, metrics and virtual counters spell it. The second result is the factor that
    /// converts a value to seconds, joules, bytes or a ratio.
    #[must_use]
    pub fn of_unit(unit: &str) -> (Self, f64) {
        match unit {
            "ns" => (Self::SECONDS, 1e-9),
            "s" => (Self::SECONDS, 1.0),
            "J" | "Joules" => (Self([0, 0, 1, 0, 0]), 1.0),
            "W" => (Self([0, -1, 1, 0, 0]), 1.0),
            "B" | "Bytes" => (Self([0, 0, 0, 1, 0]), 1.0),
            "MiB" => (Self([0, 0, 0, 1, 0]), 1_048_576.0),
            "MHz" => (Self([0, -1, 0, 0, 0]), 1e6),
            "°C" => (Self([0, 0, 0, 0, 1]), 1.0),
            "ratio" => (Self::NONE, 1.0),
            "%" => (Self::NONE, 0.01),
            _ => unit
                .split_once('/')
                .map_or((Self::EVENTS, 1.0), |(above, below)| {
                    let above = Self::of_unit(above);
                    let below = Self::of_unit(below);
                    (above.0.combine(below.0, -1), above.1 / below.1)
                }),
        }
    }

    fn combine(self, other: Self, sign: i8) -> Self {
        let mut exponents = self.0;
        exponents
            .iter_mut()
            .zip(other.0)
            .for_each(|(a, b)| *a = a.saturating_add(b.saturating_mul(sign)));
        Self(exponents)
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = |(name, n): (&&str, &i8)| match n {
            0 => None,
            1 => Some((*name).to_owned()),
            n => Some(format!("{name}^{n}")),
        };
        let parts: Vec<String> = BASES.iter().zip(&self.0).filter_map(power).collect();
        f.write_str(if parts.is_empty() { "a number" } else { "" })?;
        f.write_str(&parts.join(" "))
    }
}

/// Variable in a formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    /// Byte offset of the variable's first occurrence in the formula's text.
    pub offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum FormulaStep {
    Number(f64),
    Variable(usize),
    Negate,
    /// Arithmetic operator (`+ - * /`) and its byte offset in the formula's text.
    Operator(char, usize),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    text: String,
    /// Variables of the formula in order of first appearance, without duplicates.
    pub variables: Vec<Variable>,
    steps: Vec<FormulaStep>,
}

/// Limit on the nesting depth of parentheses in a formula.
const DEPTH: usize = 64;
/// Limit on the numbers, names and operators of a formula, each occurrence counted.
const MOST_STEPS: usize = 1000;

impl Formula {
    /// Parses a formula that consists of numbers, names, `+ - * /` and parentheses.
    ///
    /// # Errors
    /// Fails at the first syntax error; the error contains its column.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut parser = Parser {
            cursor: SyntaxCursor::new(text),
            variables: Vec::new(),
            steps: Vec::new(),
            depth: 0,
        };
        parser.sum()?;
        parser.blanks();
        match parser.cursor.peek() {
            None => Ok(Self {
                text: text.into(),
                variables: parser.variables,
                steps: parser.steps,
            }),
            Some(c) => parser.cursor.error(format!(
                "`{c}` is unexpected; an operator or the end should stand here"
            )),
        }
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the dimension of the formula's result, given the dimension of each variable.
    ///
    /// # Errors
    /// Fails if quantities of different dimensions are added or subtracted; the error contains the operator's column.
    pub fn dimension(&self, of: &[Dimension]) -> Result<Dimension, SpecError> {
        let mut stack: Vec<Dimension> = Vec::new();
        for step in &self.steps {
            match step {
                FormulaStep::Number(_) => stack.push(Dimension::NONE),
                FormulaStep::Variable(nth) => stack.push(of.get(*nth).copied().unwrap_or_default()),
                FormulaStep::Negate => {}
                FormulaStep::Operator(operator, offset) => {
                    let right = stack.pop().unwrap_or_default();
                    let left = stack.pop().unwrap_or_default();
                    stack.push(match operator {
                        '*' => left.combine(right, 1),
                        '/' => left.combine(right, -1),
                        _ if left == right => left,
                        _ => {
                            let message = format!(
                                "`{operator}` needs the same unit on both sides, not {left} and {right}"
                            );
                            return Err(SpecError::new(&self.text, *offset, message));
                        }
                    });
                }
            }
        }
        Ok(stack.pop().unwrap_or_default())
    }

    /// Returns the factor and the indices of the numerator's and the denominator's variables if the formula is a scaled ratio, such
    /// as `1000 * llc_misses / instructions`. `None` for other formulas.
    #[must_use]
    pub fn as_ratio(&self) -> Option<(f64, usize, usize)> {
        let mut stack: Vec<(f64, Option<usize>, Option<usize>)> = Vec::new();
        for step in &self.steps {
            match *step {
                FormulaStep::Number(factor) => stack.push((factor, None, None)),
                FormulaStep::Variable(nth) => stack.push((1.0, Some(nth), None)),
                FormulaStep::Negate => stack.last_mut()?.0 *= -1.0,
                FormulaStep::Operator(operator, _) => {
                    let (right, right_above, right_below) = stack.pop()?;
                    let (left, left_above, left_below) = stack.pop()?;
                    let (factor, other_above, other_below) = match operator {
                        '*' => (left * right, right_above, right_below),
                        '/' => (left / right, right_below, right_above),
                        _ => return None,
                    };
                    let above = one_of(left_above, other_above)?;
                    let below = one_of(left_below, other_below)?;
                    stack.push((factor, above, below));
                }
            }
        }
        match stack.pop()? {
            (factor, Some(above), Some(below)) => Some((factor, above, below)),
            _ => None,
        }
    }

    /// Returns the formula's value, given the values of its variables. `None` if one of them is missing or the result is not
    /// finite. `stack` is working memory that callers may reuse.
    ///
    /// ```
    /// use countersteer_model::counters::Formula;
    ///
    /// let mpki = Formula::parse("1000 * llc_misses / instructions")?;
    /// // Values are in the order in which the formula names its variables. One that was not counted gives no result.
    /// let mut stack = Vec::new();
    /// assert_eq!(mpki.evaluate(&[Some(3e6), Some(1e9)], &mut stack), Some(3.0));
    /// assert_eq!(mpki.evaluate(&[None, Some(1e9)], &mut stack), None);
    /// # Ok::<(), countersteer_model::counters::SpecError>(())
    /// ```
    #[must_use]
    pub fn evaluate(&self, of: &[Option<f64>], stack: &mut Vec<f64>) -> Option<f64> {
        stack.clear();
        for step in &self.steps {
            let value = match step {
                FormulaStep::Number(n) => *n,
                FormulaStep::Variable(nth) => of.get(*nth).copied().flatten()?,
                FormulaStep::Negate => -stack.pop()?,
                FormulaStep::Operator(operator, _) => {
                    let right = stack.pop()?;
                    let left = stack.pop()?;
                    match operator {
                        '+' => left + right,
                        '-' => left - right,
                        '*' => left * right,
                        _ => left / right,
                    }
                }
            };
            stack.push(value);
        }
        stack.pop().filter(|v| v.is_finite())
    }
}

/// Returns the present one of two optional indices. `None` if both are present.
const fn one_of(a: Option<usize>, b: Option<usize>) -> Option<Option<usize>> {
    match (a, b) {
        (Some(_), Some(_)) => None,
        (one, None) | (None, one) => Some(one),
    }
}

struct Parser<'a> {
    cursor: SyntaxCursor<'a>,
    variables: Vec<Variable>,
    steps: Vec<FormulaStep>,
    depth: usize,
}

impl Parser<'_> {
    fn blanks(&mut self) {
        self.cursor.run(char::is_whitespace);
    }

    fn operator(&mut self, wanted: [char; 2]) -> Option<(char, usize)> {
        self.blanks();
        let at = self.cursor.at;
        wanted
            .into_iter()
            .find(|c| self.cursor.take(*c))
            .map(|c| (c, at))
    }

    fn push(&mut self, step: FormulaStep, at: usize) -> Result<(), SpecError> {
        if self.steps.len() == MOST_STEPS {
            let why = format!(
                "the formula is too long; it may have {MOST_STEPS} numbers, names and operators in all"
            );
            return self.cursor.error_at(at, why);
        }
        self.steps.push(step);
        Ok(())
    }

    fn sum(&mut self) -> Result<(), SpecError> {
        self.product()?;
        while let Some((operator, at)) = self.operator(['+', '-']) {
            self.product()?;
            self.push(FormulaStep::Operator(operator, at), at)?;
        }
        Ok(())
    }

    fn product(&mut self) -> Result<(), SpecError> {
        self.factor()?;
        while let Some((operator, at)) = self.operator(['*', '/']) {
            self.factor()?;
            self.push(FormulaStep::Operator(operator, at), at)?;
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<(), SpecError> {
        self.blanks();
        self.depth += 1;
        if self.depth > DEPTH {
            return self.cursor.error("the formula is nested too deeply");
        }
        let at = self.cursor.at;
        if self.cursor.take('-') {
            self.factor()?;
            self.push(FormulaStep::Negate, at)?;
        } else if self.cursor.take('(') {
            self.sum()?;
            self.blanks();
            if !self.cursor.take(')') {
                return self.cursor.error("a closing parenthesis should stand here");
            }
        } else {
            self.operand()?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn operand(&mut self) -> Result<(), SpecError> {
        let offset = self.cursor.at;
        let word = self
            .cursor
            .run(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':'));
        let step = match word.chars().next() {
            None => {
                return self
                    .cursor
                    .error("a number, an event or a parenthesis should stand here");
            }
            Some('0'..='9' | '.') => match word.parse::<f64>() {
                Ok(number) if number.is_finite() => FormulaStep::Number(number),
                _ => {
                    return self
                        .cursor
                        .error_at(offset, format!("`{word}` is no number"));
                }
            },
            Some(_) => FormulaStep::Variable(self.variable(word, offset)),
        };
        self.push(step, offset)
    }

    fn variable(&mut self, name: &str, offset: usize) -> usize {
        let known = self.variables.iter().position(|v| v.name == name);
        known.unwrap_or_else(|| {
            self.variables.push(Variable {
                name: name.into(),
                offset,
            });
            self.variables.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str, of: &[Option<f64>]) -> Option<f64> {
        Formula::parse(text).unwrap().evaluate(of, &mut Vec::new())
    }

    #[test]
    fn formulas_follow_the_usual_rules() {
        assert_eq!(value("1 + 2 * 3 - 4 / 2", &[]), Some(5.0));
        assert_eq!(value("-(1 + 2) * 1e3", &[]), Some(-3000.0));
        assert_eq!(
            value("1000*llc_misses/instructions", &[Some(5.0), Some(1000.0)]),
            Some(5.0)
        );
        assert_eq!(value("8-4-2", &[]), Some(2.0));
    }

    #[test]
    fn what_is_missing_or_infinite_is_unavailable_not_zero() {
        assert_eq!(value("a / b", &[Some(1.0), None]), None);
        assert_eq!(value("a / b", &[Some(1.0), Some(0.0)]), None);
        assert_eq!(value("a / b", &[Some(0.0), Some(0.0)]), None);
    }

    #[test]
    fn a_scaled_quotient_of_two_names_is_a_ratio() {
        let ratio = |text: &str| Formula::parse(text).unwrap().as_ratio();
        assert_eq!(ratio("a / b"), Some((1.0, 0, 1)));
        assert_eq!(ratio("1000 * a / (b * 2)"), Some((500.0, 0, 1)));
        assert_eq!(ratio("1 / (b / a)"), Some((1.0, 1, 0)));
        for text in ["a", "3", "a * b", "a / b / c", "(a + b) / c", "a / b - 1"] {
            assert_eq!(ratio(text), None, "{text}");
        }
    }

    #[test]
    fn errors_point_at_the_column() {
        let column = |text: &str| Formula::parse(text).unwrap_err().column();
        assert_eq!(
            [
                column(""),
                column("a +"),
                column("(a"),
                column("a b"),
                column("1.2.3"),
                column("a+*b")
            ],
            [1, 4, 3, 3, 1, 3]
        );
        assert!(Formula::parse(&"(".repeat(9999)).is_err());
        assert!(Formula::parse(&"-".repeat(9999)).is_err());
        let terms = |n: usize| vec!["a"; n].join("+");
        assert!(Formula::parse(&terms(500)).is_ok());
        for long in [501, 50_000] {
            let error = Formula::parse(&terms(long)).unwrap_err();
            assert!(error.message.contains("too long"), "{error}");
        }
    }

    #[test]
    fn only_like_is_added() {
        let of = [Dimension::EVENTS, Dimension::of_unit("ns").0];
        let dimension = |text: &str| Formula::parse(text).unwrap().dimension(&of);
        assert_eq!(
            dimension("a / b + a / b").unwrap().to_string(),
            "event s^-1"
        );
        assert_eq!(dimension("a / a * b").unwrap(), Dimension::SECONDS);
        let error = dimension("a / b + a").unwrap_err();
        assert_eq!(
            (error.column(), error.message.as_str()),
            (
                7,
                "`+` needs the same unit on both sides, not event s^-1 and event"
            )
        );
    }

    #[test]
    fn units_of_metrics_are_what_their_formulas_would_be_of() {
        let of = |unit| Dimension::of_unit(unit).0;
        assert_eq!(of("instructions/cycle"), Dimension::NONE);
        assert_eq!(of("1/kilo-instruction"), Dimension::NONE);
        assert_eq!(of("instructions/s").to_string(), "event s^-1");
        assert_eq!(Dimension::of_unit("%"), (Dimension::NONE, 0.01));
    }

    proptest! {
        #[test]
        fn no_string_upsets_the_parser(text in "[-+*/(). a-c0-9\\PC]{0,40}") {
            if let Ok(formula) = Formula::parse(&text) {
                let _ = formula.dimension(&[]);
                let _ = formula.evaluate(&[Some(1.0); 3], &mut Vec::new());
            }
        }
    }
}
