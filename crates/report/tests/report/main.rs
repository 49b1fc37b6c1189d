//! Records, replays, answers, tables and reports as a whole.

mod golden;
mod pages;
mod records;
mod synthetic;
mod traces;
