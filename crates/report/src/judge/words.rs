//! Verdicts as text: the sentences that terminal, report and JSON print.

use super::bounded::Bounded;
use super::ranked::Ranked;
use super::ranking::{Ranking, Verdict};
use super::remark::Remark;

impl Ranking {
    /// Returns the remarks, the upper bound and the recommendation, as sentences of plain text.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let remarks = self.remarks.iter().map(Remark::words);
        let bound = self.bound.iter().map(Bounded::sentence);
        remarks.chain(bound).chain([self.sentence()]).collect()
    }

    /// Returns the recommendation as a sentence of plain text.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Some(best) = self.best() else {
            return match self.verdict {
                Verdict::NoBaseline => {
                    "Nothing says how Linux alone would do: add `linux` to the policies.".into()
                }
                _ => "Leave these to Linux: no other policy was compared that can be used.".into(),
            };
        };
        let policy = &best.policy;
        let gain = best.throughput.words_of("throughput");
        let loser = best.loser_text();
        match self.verdict {
            Verdict::Use if best.throughput.low > 0.0 => {
                format!("Use {policy}: {gain}, {loser}{}.", self.equals())
            }
            // On random mixes such a policy did not harm, and often gained much; so it is still the advice.
            Verdict::Use => format!(
                "Try {policy}: {gain}, {loser}{}. The interval contains zero: confirm it with `steer trial`.",
                self.equals()
            ),
            Verdict::Costly => {
                let slower = best.slowdown.map(|s| s.words()).unwrap_or_default();
                format!(
                    "Use {policy} if throughput is all that counts: {gain}, but the mean slowdown changes by {slower}, {loser}."
                )
            }
            Verdict::Unsure => {
                let (better, of) = best.better_seeds;
                format!(
                    "Leave these to Linux: {policy} is best with {gain}, better in {better} of {of} seeds, which is no more than chance."
                )
            }
            Verdict::Waits => self.patient().map_or_else(String::new, |p| {
                format!(
                    "Use {} if waiting counts more than throughput: mean slowdown {}, throughput {}, {}.",
                    p.policy,
                    p.slowdown.map(|s| s.words()).unwrap_or_default(),
                    p.throughput.words(),
                    p.loser_text()
                )
            }),
            Verdict::TooShort => format!(
                "No advice: these programs are too short for a policy to act on them. What was measured is where they start; best: {policy}, {gain}."
            ),
            Verdict::LeaveToLinux | Verdict::NoBaseline => {
                let most = if best.throughput.median <= 0.0 {
                    "no policy gains anything"
                } else {
                    "no policy gains more than half a per cent"
                };
                format!(
                    "Leave these to Linux: {most}; best: {policy}, {}, {loser}.",
                    best.throughput.words()
                )
            }
        }
    }

    /// Returns a clause on the number of policies whose gain differs from the best by less than 0.5
    /// %.
    fn equals(&self) -> String {
        const ALIKE: f64 = 0.005;
        let best = self.best().map_or(0.0, |b| b.throughput.median);
        let alike = |r: &&Ranked| best - r.throughput.median < ALIKE;
        match self.deployable.iter().skip(1).filter(alike).count() {
            0 => String::new(),
            1 => "; one other does as well".into(),
            n => format!("; {n} others do as well"),
        }
    }
}

impl Ranked {
    /// Returns a clause on the program with the largest loss.
    #[must_use]
    pub(crate) fn loser_text(&self) -> String {
        self.lost().map_or_else(
            || "no program loses".into(),
            |p| format!("worst loser {} {}", p.name, p.speed.words()),
        )
    }
}
