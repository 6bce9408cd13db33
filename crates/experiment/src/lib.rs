//! The experiments behind `lepus experiment` and `lepus tune`: workloads of five field reports, run again on `lepus` and on any
//! other broker for AMQP 0-9-1, each with a report to look at.
//!
//! What happens, in the order of the modules: [`call`] reads the command line into a plan. A *subject* is a broker
//! under test: one that is started here on CPUs and in a directory of its own, or one that runs somewhere. A *workload* is a
//! run of `lepus perf` as a program of its own whose JSON Lines are read; a *sampler* reads what Linux knows about
//! the broker's process meanwhile. An *experiment* puts them together: rounds in which the brokers take turns, so
//! that ratios are of neighbours in time. A *report* is a directory with a page, its figures and how they came about;
//! [`plot`] draws. [`tune`] tries settings of `lepus` on the same ground. Nothing here knows a broker from inside: all of it goes by AMQP, `/proc` and the metrics page.
//! One experiment has no broker: it asks the engine of content filters as a library.
#![forbid(unsafe_code)]

pub mod affinity;
mod artemis;
#[cfg(feature = "bench")]
pub mod bench;
mod call;
pub mod cast;
mod command;
pub mod disk;
mod experiment;
mod ground;
mod guard;
pub mod identity;
mod java;
pub mod metrics;
mod nats;
mod plan;
pub mod plot;
mod profile;
mod progress;
mod qpid;
pub mod rabbitmq;
mod record;
mod report;
mod sample;
mod session;
pub mod statistics;
pub mod stop;
pub mod subject;
mod surroundings;
mod terminal;
pub mod tune;
mod workload;

pub use call::Words;
pub use command::run;
