//! The load tester behind `lepus perf`.
mod body;
mod check;
mod confirm;
mod option;
mod pattern;
mod report;
mod schedule;
mod statistics;
mod uri;
