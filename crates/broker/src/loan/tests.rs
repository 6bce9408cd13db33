use super::*;
use alloc::collections::VecDeque;
use lepus_base::Rng;

const SHARE: usize = 32 << 20;

fn limits() -> Limits {
    Limits { memory_bytes: SHARE, ..Limits::default() }
}

/// What is on its way to the lender: bytes asked for, or given back.
#[derive(Clone, Copy)]
enum Said {
    Want(usize),
    Return(usize),
}

/// Shards and their lender, with lines between them that keep their order.
struct Bank {
    lender: Lender,
    loans: Vec<Loan>,
    used: Vec<usize>,
    said: Vec<VecDeque<Said>>,
    answers: Vec<VecDeque<Answer>>,
}

impl Bank {
    fn new(shards: u16) -> Bank {
        let count = usize::from(shards);
        Bank {
            lender: Lender::new(&limits(), shards),
            loans: vec![Loan::new(&limits(), shards); count],
            used: vec![0; count],
            said: vec![VecDeque::new(); count],
            answers: vec![VecDeque::new(); count],
        }
    }

    /// A cycle of a shard: it uses no more than it may, as publishers are held back.
    fn turn(&mut self, shard: usize, used: usize) {
        let loan = &mut self.loans[shard];
        if let Some(answer) = self.answers[shard].pop_front() {
            loan.take(answer.lent, answer.left);
        }
        self.used[shard] =
            if used > self.used[shard] { used.min(loan.limit).max(self.used[shard]) } else { used };
        if let Some(bytes) = loan.ask(self.used[shard]) {
            self.said[shard].push_back(Said::Want(bytes));
        } else if let Some(bytes) = loan.give_back(self.used[shard]) {
            self.said[shard].push_back(Said::Return(bytes));
        }
    }

    fn hear(&mut self, shard: usize) {
        let id = ShardId(shard as u16);
        match self.said[shard].pop_front() {
            Some(Said::Want(bytes)) => {
                let answer = self.lender.ask(id, bytes);
                self.answers[shard].push_back(answer);
            }
            Some(Said::Return(bytes)) => {
                self.lender.give_back(id, bytes);
                while let Some(answer) = self.lender.next_answer() {
                    self.answers[answer.to.index()].push_back(answer);
                }
            }
            None => {}
        }
    }

    fn check(&self) {
        let all: usize = self.lender.debts.iter().map(|debt| debt.lent).sum();
        assert_eq!(all + self.lender.free, SHARE * self.loans.len());
        for (loan, debt) in self.loans.iter().zip(&self.lender.debts) {
            assert!(loan.bytes <= debt.lent);
            assert!(loan.bytes >= SHARE / FLOOR_PART);
            assert!(debt.wish == 0 || self.lender.free == 0, "one waits, and there is something");
        }
    }

    /// Everything is heard, with the same use; in a bounded number of rounds.
    fn settle(&mut self, used: impl Fn(usize) -> usize) {
        for _ in 0..200 {
            for shard in 0..self.loans.len() {
                self.turn(shard, used(shard));
                self.hear(shard);
                self.check();
            }
            if self.said.iter().all(VecDeque::is_empty)
                && self.answers.iter().all(VecDeque::is_empty)
            {
                return;
            }
        }
        panic!("they do not come to rest");
    }
}

#[test]
fn nobody_has_more_than_was_lent_and_all_of_it_is_the_budget_whatever_shards_use() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let shards = 2 + rng.below(7) as u16;
        let mut bank = Bank::new(shards);
        for _ in 0..500 {
            let shard = rng.below(u64::from(shards)) as usize;
            match rng.below(3) {
                0 => bank.hear(shard),
                1 => {
                    let used = rng.below(2 * SHARE as u64) as usize;
                    bank.turn(shard, used);
                }
                _ => bank.turn(shard, bank.used[shard]),
            }
            bank.check();
        }
        // Idle shards keep little, so that one of them gets all that another wants.
        bank.settle(|_| 0);
        let all = SHARE * usize::from(shards);
        for (shard, loan) in bank.loans.iter().enumerate() {
            assert!(loan.bytes <= SHARE / 2, "shard {shard} keeps {} of {SHARE}", loan.bytes);
        }
        for _ in 0..50 {
            bank.settle(|shard| if shard == 1 { all } else { 0 });
        }
        assert!(bank.loans[1].is_all());
        assert_eq!(bank.lender.free, 0);
        let others: usize = bank.loans.iter().map(|loan| loan.bytes).sum::<usize>();
        assert!(bank.loans[1].bytes >= all - (others - bank.loans[1].bytes));
        bank.settle(|_| 0);
        assert!(bank.loans.iter().all(|loan| !loan.is_all()));
    }
}

#[test]
fn of_several_who_want_everything_each_gets_a_good_part() {
    let mut bank = Bank::new(4);
    for _ in 0..50 {
        bank.settle(|shard| if shard < 3 { 4 * SHARE } else { 0 });
    }
    // What one of them does not need any more goes to the one with the least.
    let least = bank.loans[..3].iter().map(|loan| loan.bytes).min().unwrap();
    assert!(least >= SHARE / FLOOR_PART);
    let most = (0..3).max_by_key(|&shard| bank.loans[shard].bytes).unwrap();
    for _ in 0..50 {
        bank.settle(|shard| if shard < 3 && shard != most { 4 * SHARE } else { 0 });
    }
    let least = (0..3).filter(|&shard| shard != most).map(|shard| bank.loans[shard].bytes).min();
    assert!(least.unwrap() > SHARE, "{least:?}");
}

#[test]
fn a_shard_that_grows_asks_seldom() {
    let mut bank = Bank::new(64);
    let mut asked = 0;
    for used in (0..40 * SHARE).step_by(100_000) {
        bank.turn(5, used);
        asked += bank.said[5].len();
        bank.hear(5);
        assert_eq!(bank.used[5], used, "it never waits");
    }
    assert!(asked < 100, "{asked} questions");
}

#[test]
fn one_shard_alone_has_everything_and_asks_nobody() {
    let mut loan = Loan::new(&limits(), 1);
    assert_eq!((loan.bytes, loan.obtainable, loan.is_all()), (SHARE, SHARE, true));
    assert_eq!((loan.ask(2 * SHARE), loan.give_back(0)), (None, None));
}

#[test]
fn shards_hear_of_much_more_than_they_know_of() {
    let mut bank = Bank::new(2);
    bank.settle(|_| 0);
    for _ in 0..50 {
        bank.settle(|shard| if shard == 1 { 2 * SHARE } else { 0 });
    }
    // Shard 0 has asked while there was nothing.
    bank.settle(|_| 2 * SHARE);
    let little = bank.loans[0].obtainable;
    bank.settle(|shard| if shard == 0 { SHARE / 16 } else { 0 });
    bank.settle(|shard| if shard == 0 { SHARE / 16 } else { 0 });
    assert!(bank.loans[0].obtainable > SHARE, "{little}, then {}", bank.loans[0].obtainable);
}

#[test]
fn another_budget_changes_what_everybody_has_and_nothing_that_is_lent() {
    let mut bank = Bank::new(4);
    bank.settle(|shard| if shard == 2 { SHARE } else { 1000 });
    let all = 4 * SHARE;
    for (share, part) in [(SHARE / 4, 4), (SHARE / 1024, 1024)] {
        for loan in &mut bank.loans {
            loan.set_share(share);
            assert_eq!((loan.limit, loan.obtainable <= all / part), (loan.bytes / part, true));
        }
    }
    // With nothing everything is too much, and nobody gets anything beyond what there is.
    for loan in &mut bank.loans {
        loan.set_share(0);
        assert_eq!((loan.limit, loan.obtainable), (0, 0));
    }
    bank.settle(|_| 1000);
    assert!(bank.loans.iter().all(Loan::is_all));
    assert_eq!(bank.loans.iter().map(|loan| loan.bytes).sum::<usize>(), all);
    // Twice as much as at the start: each may use twice as much of it.
    for loan in &mut bank.loans {
        loan.set_share(2 * SHARE);
    }
    for _ in 0..50 {
        bank.settle(|shard| if shard == 1 { 6 * SHARE } else { 0 });
    }
    assert!(bank.loans[1].limit >= 6 * SHARE && bank.loans[1].obtainable <= 2 * all);
    for loan in &mut bank.loans {
        loan.set_share(SHARE);
    }
    for _ in 0..50 {
        bank.settle(|_| 0);
    }
    assert_eq!(bank.loans.iter().map(|loan| loan.limit).sum::<usize>() + bank.lender.free, all);
}
