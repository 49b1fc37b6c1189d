//! Live display of `steer top`: one thread counts, and this thread draws and reads keys.
//!
//! Input: a counting session. Output: the screen, until the user quits, a signal arrives, or the last interval ends. The
//! terminal is restored in every case, including a panic.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use countersteer_counters::{CounterError, CountingSummary, Stopper};
use countersteer_report::record::CountingRecorder;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::input;
use super::view::{Theme, TopView};
use crate::error::{FaultKind, failure};
use crate::interrupt::{self, SignalFlag};
use countersteer_session::top::sample::Snapshot;
use countersteer_session::top::state::TopState;
use countersteer_session::top::{OpenedTop, TopOutcome};

/// Maximum delay before a key or a snapshot is handled.
const BEAT: Duration = Duration::from_millis(50);
/// Time limit for the started program to exit after a request, before it is killed.
const GRACE: Duration = Duration::from_secs(2);

type LiveSession = Result<(CountingSummary, Option<CountingRecorder>), CounterError>;

/// Terminal in drawing mode; dropping this value restores the normal mode.
struct DrawingTerminal(DefaultTerminal);

impl DrawingTerminal {
    fn open() -> anyhow::Result<Self> {
        let hint =
            "cannot draw on this terminal; with stdout in a file or pipe, plain tables are printed";
        ratatui::try_init().map(Self).context(hint)
    }
}

impl Drop for DrawingTerminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows a counting session on the terminal, for at most `samples` intervals if given. Returns the session's results.
pub fn show(opened: OpenedTop, samples: Option<u64>) -> anyhow::Result<TopOutcome> {
    let OpenedTop {
        mut session,
        mut state,
        mut taker,
    } = opened;
    let stopper = session.stopper()?;
    let signalled = interrupt::flag()?;
    let mut screen = DrawingTerminal::open()?;
    let (send, receive) = channel();
    let reads = Arc::new(Mutex::new(state.reads()));
    let wanted = Arc::clone(&reads);
    let count = move || {
        let summary = session.run(|tick| {
            let mut snapshot = taker.take(tick);
            // A write error of the record is reported at the end of the session, because the screen is in use now.
            let _ = taker.recorder.as_mut().and_then(CountingRecorder::done);
            let names = wanted
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            if let Err(why) = taker.turn_to(&names) {
                snapshot.note = Some(why.to_string());
            }
            // If the display has ended already, sending fails and the value is discarded. The session then ends as after a
            // signal, with all counts.
            let _ = send.send(snapshot);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok((summary, taker.recorder))
    };
    let counting = std::thread::Builder::new()
        .name("counting".into())
        .spawn(count)
        .context("cannot start a thread")?;
    let mut shown = ShownFrame {
        receive,
        counting: Some(counting),
        samples,
        signalled,
        reads,
    };
    let drawn = shown.until_quit(&mut screen, &mut state);
    drop(screen);
    let ended = drawn?;
    shown.finish(ended, &stopper)
}

struct ShownFrame {
    receive: Receiver<Snapshot>,
    /// Handle of the counting thread; `None` after the thread has been joined.
    counting: Option<JoinHandle<LiveSession>>,
    samples: Option<u64>,
    signalled: SignalFlag,
    /// Names of the virtual counters that the shown columns need, shared with the counting thread.
    reads: Arc<Mutex<Vec<&'static str>>>,
}

impl ShownFrame {
    /// Draws snapshots and handles keys until the user quits. Returns the session's results if counting ends first, otherwise
    /// `None`.
    fn until_quit(
        &mut self,
        screen: &mut DrawingTerminal,
        state: &mut TopState,
    ) -> anyhow::Result<Option<(CountingSummary, Option<CountingRecorder>)>> {
        let mut view = TopView::new(Theme::of_environment());
        let mut ended = None;
        let mut changed = true;
        loop {
            if changed {
                screen
                    .0
                    .draw(|frame| view.draw(frame, state))
                    .context("cannot draw")?;
            }
            changed = false;
            if event::poll(BEAT).context("cannot read keys")? {
                changed = true;
                if let Event::Key(key) = event::read().context("cannot read keys")?
                    && key.kind != KeyEventKind::Release
                    && let Some(action) = input::action(state.mode, key)
                {
                    if state.apply(action) {
                        return Ok(ended);
                    }
                    *self.reads.lock().unwrap_or_else(PoisonError::into_inner) = state.reads();
                }
            }
            if self.signalled.load(Ordering::Relaxed) {
                return Ok(ended);
            }
            loop {
                match self.receive.try_recv() {
                    Ok(snapshot) => {
                        changed = true;
                        let enough = self.samples.is_some_and(|n| snapshot.number + 1 >= n);
                        state.ingest(snapshot);
                        if enough {
                            return Ok(ended);
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        let Some(counting) = self.counting.take() else {
                            break;
                        };
                        let outcome = joined(counting)?;
                        state.notes.push(ending(&outcome.0));
                        (ended, changed) = (Some(outcome), true);
                        break;
                    }
                }
            }
        }
    }

    fn finish(
        &mut self,
        ended: Option<(CountingSummary, Option<CountingRecorder>)>,
        stopper: &Stopper,
    ) -> anyhow::Result<TopOutcome> {
        if let Some((summary, recorder)) = ended {
            return Ok(TopOutcome {
                summary,
                recorder,
                stopped: false,
            });
        }
        let Some(counting) = self.counting.take() else {
            return Err(failure(
                FaultKind::Internal,
                "no counting thread and no counts",
            ));
        };
        stopper.stop();
        let stopped_at = Instant::now();
        while !counting.is_finished() && stopped_at.elapsed() < GRACE {
            std::thread::sleep(BEAT / 10);
        }
        stopper.stop();
        let (summary, recorder) = joined(counting)?;
        Ok(TopOutcome {
            summary,
            recorder,
            stopped: true,
        })
    }
}

fn joined(
    counting: JoinHandle<LiveSession>,
) -> anyhow::Result<(CountingSummary, Option<CountingRecorder>)> {
    let counted = counting
        .join()
        .map_err(|_| failure(FaultKind::Internal, "the counting thread has panicked"))?;
    Ok(counted?)
}

fn ending(summary: &CountingSummary) -> String {
    let what = summary
        .ending
        .map_or("all selected processes have ended".into(), |e| {
            format!("the program has ended with exit code {}", e.code())
        });
    format!("{what}; q quits")
}
