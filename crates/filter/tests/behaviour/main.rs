//! What filters mean, as sentences: the language, its verdicts, and the engine against a naive evaluator.

mod engine;
mod generate;
mod guide;
mod language;
mod oracle;
mod sample;
mod selectors;
mod verdicts;
