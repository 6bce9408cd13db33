//! The parts that a command line asks for, carried out one after the other.

use crate::churn::ChurnPlan;
use crate::filters::FiltersPlan;
use crate::idle::{self, IdlePlan};
use crate::plan::Plan;
use crate::report::data::{self, Format};

/// One of the parts that a command line asks for.
#[derive(Debug)]
pub(crate) enum Job {
    Run(Box<Plan>),
    Churn(ChurnPlan),
    Idle(IdlePlan),
    /// Filters, and the load that goes through them.
    Filters(Box<FiltersPlan>, Box<Plan>),
    /// The tester's own speed with such a load, told with the runs that follow: a plan for producers, one for consumers.
    Ceiling(Box<Plan>, Box<Plan>),
    Sink {
        port: u16,
        body_bytes: usize,
    },
}

impl Job {
    /// Prints what stands before the figures of this job and those that follow it.
    pub(crate) fn print_head(&self) {
        match self {
            Job::Run(plan) => plan.run.format.print_head(),
            Job::Churn(plan) => plan.format.print_head(),
            Job::Filters(plan, _) => plan.format.print_head(),
            Job::Idle(plan) if plan.format == Format::Csv => data::print(idle::CSV_HEAD),
            Job::Ceiling(plan, _) => plan.run.format.print_head(),
            Job::Idle(_) | Job::Sink { .. } => {}
        }
    }
}

impl From<Plan> for Job {
    fn from(plan: Plan) -> Job {
        Job::Run(Box::new(plan))
    }
}
