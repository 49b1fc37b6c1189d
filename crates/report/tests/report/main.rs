//! Records, replays, answers, tables and reports as a whole.

mod records;
mod synthetic;
