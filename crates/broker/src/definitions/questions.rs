//! Questions that ask for many changes: what of their answers is there.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::refusal::Refusal;

/// One of them.
#[derive(Debug)]
struct Question {
    /// Changes without an answer.
    open: usize,
    /// The answers, in the order of the requests.
    results: Vec<Result<(), Refusal>>,
}

/// All that are not answered, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Questions(BTreeMap<u64, Question>);

impl Questions {
    /// A question asks for so many changes.
    pub(crate) fn add(&mut self, number: u64, changes: usize) {
        let mut results = Vec::new();
        results.resize_with(changes, || Ok(()));
        let before = self.0.insert(number, Question { open: changes, results });
        assert!(before.is_none(), "questions have numbers of their own");
    }

    /// The change at a place has its answer. All answers of the question, if it was the last.
    pub(crate) fn answered(
        &mut self,
        number: u64,
        index: u32,
        result: Result<(), Refusal>,
    ) -> Option<Vec<Result<(), Refusal>>> {
        let question = self.0.get_mut(&number).expect("a question stays until all is answered");
        question.results[index as usize] = result;
        question.open -= 1;
        if question.open > 0 {
            return None;
        }
        self.0.remove(&number).map(|question| question.results)
    }
}
