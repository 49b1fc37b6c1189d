//! Rates at which tasks repeat their phases, given that tasks wait until others resume them.
//!
//! Input: for each task, the length of a pass, its waits and its resumes. Output: passes per second.

use std::collections::BTreeMap;

/// Contents of one pass through a task's phases: CPU time, sleeps, and numbers of waits and resumes by name.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskPass {
    pub(super) run_s: f64,
    pub(super) sleeps: f64,
    pub(super) slept_s: f64,
    pub(super) waits: BTreeMap<String, f64>,
    pub(super) resumes: BTreeMap<String, f64>,
}

/// Minimum length of a pass in seconds; rt-app cannot measure shorter ones.
const SHORTEST_S: f64 = 1e-6;

impl TaskPass {
    pub(super) fn add(&mut self, other: &Self, times: f64) {
        self.run_s += other.run_s * times;
        self.sleeps += other.sleeps * times;
        self.slept_s += other.slept_s * times;
        for (own, others) in [
            (&mut self.waits, &other.waits),
            (&mut self.resumes, &other.resumes),
        ] {
            for (name, count) in others {
                *own.entry(name.clone()).or_default() += count * times;
            }
        }
    }

    /// Returns the length of the pass without waits, in seconds.
    pub(super) fn length_s(&self) -> f64 {
        (self.run_s + self.slept_s).max(SHORTEST_S)
    }

    /// Returns the pass with its waits as sleeps of the time that is left at this rate; without them if no time is left.
    pub(super) fn paced(&self, passes_per_s: f64) -> Self {
        let waits: f64 = self.waits.values().sum();
        let slack_s = 1.0 / passes_per_s - self.length_s();
        let mut paced = self.clone();
        if waits > 0.0 && slack_s > SHORTEST_S {
            paced.sleeps += waits;
            paced.slept_s += slack_s;
        }
        paced
    }
}

/// Limit on reductions of rates. Only long chains whose rates vanish, as with tasks that wait for each other, need more.
const MOST_STEPS: usize = 5_000_000;

/// Returns the passes per second of each task; 0 for a task that waits although no other task resumes it.
///
/// Each pass needs one resume for each of its waits with the same name; a resume wakes all waiting tasks at once. Rates start
/// with the speed of each task alone and are reduced until all are consistent.
pub(super) fn rates(passes: &[TaskPass]) -> Vec<f64> {
    let names = Names::of(passes);
    let mut rates: Vec<f64> = passes.iter().map(|pass| 1.0 / pass.length_s()).collect();
    let mut resumed = vec![0.0; names.resumers.len()];
    let mut changed: Vec<usize> = (0..names.resumers.len()).collect();
    let mut steps = 0;
    for _ in 0..=passes.len() {
        for name in &changed {
            let of_tasks = names.resumers[*name].iter();
            resumed[*name] = of_tasks.fold(0.0, |sum, (task, count)| sum + count * rates[*task]);
            steps += names.resumers[*name].len();
        }
        let waiting = unique(&changed, |name| &names.waiters[*name]);
        steps += waiting.len();
        let reduces = |task: &usize| names.reduce(*task, &resumed, &mut rates[*task]);
        let reduced: Vec<usize> = waiting.into_iter().filter(reduces).collect();
        changed = unique(&reduced, |task| &names.resumed_by[*task]);
        if changed.is_empty() || steps > MOST_STEPS {
            break;
        }
    }
    rates
}

/// Wait of a task: the index of its name, the waits per pass, and the task's own resumes of that name.
struct NamedWait {
    name: usize,
    count: f64,
    own: f64,
}

/// Indexed names of waits and resumes.
struct Names {
    /// Tasks that resume each name, with their resumes per pass.
    resumers: Vec<Vec<(usize, f64)>>,
    /// Tasks that wait for each name.
    waiters: Vec<Vec<usize>>,
    /// Waits of each task.
    waits: Vec<Vec<NamedWait>>,
    /// Names that each task resumes.
    resumed_by: Vec<Vec<usize>>,
}

impl Names {
    fn of(passes: &[TaskPass]) -> Self {
        let all = passes
            .iter()
            .flat_map(|p| p.waits.keys().chain(p.resumes.keys()));
        let mut index: BTreeMap<&str, usize> = all.map(|name| (name.as_str(), 0)).collect();
        (index.values_mut().enumerate()).for_each(|(nth, name)| *name = nth);
        let mut names = Self {
            resumers: vec![Vec::new(); index.len()],
            waiters: vec![Vec::new(); index.len()],
            waits: Vec::with_capacity(passes.len()),
            resumed_by: Vec::with_capacity(passes.len()),
        };
        for (task, pass) in passes.iter().enumerate() {
            let wait = |(name, count): (&String, &f64)| NamedWait {
                name: index[name.as_str()],
                count: *count,
                own: pass.resumes.get(name).copied().unwrap_or(0.0),
            };
            let waits: Vec<NamedWait> = pass.waits.iter().map(wait).collect();
            waits.iter().for_each(|w| names.waiters[w.name].push(task));
            names.waits.push(waits);
            for (name, count) in &pass.resumes {
                names.resumers[index[name.as_str()]].push((task, *count));
            }
            let resumed = pass.resumes.keys().map(|name| index[name.as_str()]);
            names.resumed_by.push(resumed.collect());
        }
        names
    }

    /// Reduces the rate of a task to that of its resumes; returns true if the rate changed.
    fn reduce(&self, task: usize, resumed: &[f64], rate: &mut f64) -> bool {
        let before = *rate;
        for wait in &self.waits[task] {
            let others = resumed[wait.name] - wait.own * *rate;
            *rate = rate.min(others.max(0.0) / wait.count);
        }
        *rate < before
    }
}

/// Returns the indices that belong to any of `of`, in order and each once.
fn unique<'a>(of: &[usize], with: impl Fn(&usize) -> &'a Vec<usize>) -> Vec<usize> {
    let mut all: Vec<usize> = of.iter().flat_map(with).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(run_s: f64, slept_s: f64, waits: &str, resumes: &str) -> TaskPass {
        let named = |name: &str| {
            let once = (name.to_owned(), 1.0);
            (!name.is_empty()).then_some(once).into_iter().collect()
        };
        TaskPass {
            run_s,
            sleeps: f64::from(u8::from(slept_s > 0.0)),
            slept_s,
            waits: named(waits),
            resumes: named(resumes),
        }
    }

    #[test]
    fn who_waits_goes_as_often_as_it_is_resumed() {
        let passes = [
            pass(0.002, 0.008, "", "a"),
            pass(0.001, 0.0, "a", "b"),
            pass(0.001, 0.0, "b", ""),
            pass(0.001, 0.0, "nobody", ""),
        ];
        let rates = rates(&passes);
        assert_eq!(rates[3], 0.0);
        for rate in &rates[..3] {
            assert!((rate - 100.0).abs() < 1e-9, "{rates:?}");
        }
        let paced = passes[1].paced(rates[1]);
        assert_eq!(paced.sleeps, 1.0);
        assert!((paced.slept_s - 0.009).abs() < 1e-9, "{paced:?}");
    }

    #[test]
    fn many_tasks_take_no_time_for_each_pair_of_them() {
        let most = 20_000;
        let begun = std::time::Instant::now();
        let apart = vec![pass(0.001, 0.0, "", ""); most];
        assert_eq!(rates(&apart), vec![1000.0; most]);
        // Each task waits for the next, and the last is the slowest.
        let chain = |n: usize| {
            let names = [format!("{n}"), format!("{}", n + 1)];
            let (run_s, waits) = if n + 1 < most {
                (0.001, names[1].as_str())
            } else {
                (0.1, "")
            };
            pass(run_s, 0.0, waits, &names[0])
        };
        let chain: Vec<TaskPass> = (0..most).map(chain).collect();
        assert!(rates(&chain).iter().all(|rate| (rate - 10.0).abs() < 1e-9));
        // Two that wait for each other slow each other down without end.
        let mut circle = vec![pass(0.001, 0.0, "", "x"); most];
        for (n, pass) in circle.iter_mut().enumerate() {
            pass.waits = [(format!("{}", n ^ 1), 1.0001)].into();
            pass.resumes = [(format!("{n}"), 1.0)].into();
        }
        assert!(rates(&circle).iter().all(|rate| *rate < 1000.0));
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
