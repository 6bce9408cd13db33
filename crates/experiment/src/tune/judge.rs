//! Which settings are out, and which one is recommended: pure functions of the scores of rounds.

use crate::statistics::{Confidence, Estimate, quantile, ratio};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Before so many rounds nothing is given up.
pub const ROUNDS_BEFORE_DROP: usize = 4;
/// Fewer shards are preferred where they are shown to reach this share of the best.
pub const AS_GOOD: f64 = 0.97;

/// The risk that a setting is given up that is not worse than another one.
pub const GIVE_UP_RISK: f64 = 0.01;
/// The risk that a setting is recommended that is not better than what `lepus` does by itself.
pub const ADVICE_RISK: f64 = 0.025;

/// The scores of a setting: one for each round it took part in, higher is better. Rounds are numbered from 0; one that
/// failed or did not take place is none.
pub type Scores = Vec<Option<f64>>;

/// The ratio of two settings over the rounds that both took part in.
#[must_use]
pub fn compare(of: &Scores, by: &Scores, confidence: Confidence) -> Option<Estimate> {
    let pairs: Vec<(f64, f64)> =
        of.iter().zip(by).filter_map(|(of, by)| Some(((*of)?, (*by)?))).collect();
    ratio(&pairs, confidence)
}

/// The logarithms of the ratios of two settings, of the rounds that both took part in.
fn logs(of: &Scores, by: &Scores) -> Vec<f64> {
    let ratios = of.iter().zip(by).filter_map(|(of, by)| Some(((*of)? / (*by)?).ln()));
    ratios.filter(|log| log.is_finite()).collect()
}

/// Mean and standard error of some values; none of fewer than two.
fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (values.len() > 1).then(|| (mean, (squares / (count - 1.0) / count).sqrt()))
}

/// The best of those still in the running: the one that no other beats over the rounds that both took part in, by the
/// mean of their ratios. Before there are two common rounds, the first one.
#[must_use]
pub fn leader(scores: &[Scores], is_in: &[bool]) -> Option<usize> {
    let mut contenders =
        (0..scores.len()).filter(|at| is_in[*at] && scores[*at].iter().any(Option::is_some));
    let first = contenders.next()?;
    let better = |best: usize, other: usize| {
        let ratio = compare(&scores[other], &scores[best], Confidence::P95);
        if ratio.is_some_and(|ratio| ratio.value > 1.0) { other } else { best }
    };
    Some(contenders.fold(first, better))
}

/// Those that are clearly worse than another one, after at least four common rounds. It is asked after each of `rounds`
/// rounds and about every pair; all these questions together find a setting worse that is not with a risk of
/// [`GIVE_UP_RISK`]. What `lepus` does by itself, setting 0, is never given up.
#[must_use]
pub fn losers(scores: &[Scores], is_in: &[bool], rounds: usize) -> Vec<usize> {
    let questions = scores.len() * scores.len().saturating_sub(1) * rounds.max(1);
    // Of the two sides of an interval only one counts.
    let confidence = Confidence::Risk(2.0 * GIVE_UP_RISK / questions.max(1) as f64);
    // The same for all with as many rounds, and not free.
    let mut quantiles = BTreeMap::new();
    let mut is_worse = |at: usize, than: usize| {
        let logs = logs(&scores[at], &scores[than]);
        let degrees = logs.len().saturating_sub(1);
        logs.len() >= ROUNDS_BEFORE_DROP && {
            let reach = *quantiles.entry(degrees).or_insert_with(|| quantile(degrees, confidence));
            spread(&logs).is_some_and(|(mean, error)| mean + reach * error < 0.0)
        }
    };
    let all = 0..scores.len();
    let is_lost = |at: &usize| {
        is_in[*at] && all.clone().any(|than| than != *at && is_in[than] && is_worse(*at, than))
    };
    (1..scores.len()).filter(is_lost).collect()
}

/// Those that are measured once more, in fresh rounds, because something seems to be better than what `lepus` does by
/// itself: that, the leader, and the one with the fewest shards that seems to come near it. None if nothing does.
#[must_use]
pub fn finalists(found: &Found<'_>) -> Vec<usize> {
    let scores = found.searched();
    let is_in = comparable(found);
    let Some(best) = leader(&scores, &is_in).filter(|best| *best != 0) else { return Vec::new() };
    let mean = |of: usize, by: usize| {
        compare(&scores[of], &scores[by], Confidence::P95).map_or(0.0, |ratio| ratio.value)
    };
    if mean(best, 0) <= 1.0 {
        return Vec::new();
    }
    let comes_near = |at: &usize| {
        let is_smaller = is_in[*at] && found.shards[*at] < found.shards[best];
        is_smaller && mean(*at, best) >= AS_GOOD && mean(*at, 0) > 1.0
    };
    let fewer = (1..scores.len()).filter(comes_near).min_by_key(|at| found.shards[*at]);
    let mut finalists: Vec<usize> = [Some(0), fewer, Some(best)].into_iter().flatten().collect();
    finalists.sort_unstable();
    finalists
}

/// The order of a round: forwards and backwards in turn, so that what the machine does over time is not one setting's
/// luck.
#[must_use]
pub fn turns(round: usize, is_in: &[bool]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..is_in.len()).filter(|at| is_in[*at]).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// What was measured, by setting; setting 0 is what `lepus` does by itself.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The scores of all rounds.
    pub scores: &'a [Scores],
    /// Which have not been given up.
    pub is_in: &'a [bool],
    /// Which can be compared with setting 0: both have CPUs of the load to themselves, or both do not.
    pub is_comparable: &'a [bool],
    /// Their numbers of shards.
    pub shards: &'a [usize],
    /// Rounds of the search; those behind them are fresh: of the finalists alone.
    pub search_rounds: usize,
}

impl Found<'_> {
    fn searched(&self) -> Vec<Scores> {
        let part = |all: &Scores| all.iter().take(self.search_rounds).copied().collect();
        self.scores.iter().map(part).collect()
    }

    fn fresh(&self) -> Vec<Scores> {
        let part = |all: &Scores| all.iter().skip(self.search_rounds).copied().collect();
        self.scores.iter().map(part).collect()
    }
}

/// Why a setting is recommended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// There was nothing to compare it with.
    Alone,
    /// It is what `lepus` does by itself, and nothing is shown to be better; the leader by it.
    NothingBetter(Estimate),
    /// The same; something seemed better in the search, and the fresh rounds do not show it: by this ratio in
    /// them, or in the search where there were none.
    NotConfirmed(Estimate),
    /// It is shown in fresh rounds to be better than what `lepus` does by itself: by this ratio.
    Better(Estimate),
    /// The best is better than what `lepus` does by itself, but this one needs fewer shards, is better as well and is
    /// shown to reach [`AS_GOOD`] of the best: this one by the best.
    Fewer(Estimate),
}

/// A recommendation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// Which setting.
    pub choice: usize,
    /// The one with the highest mean of the search.
    pub best: usize,
    /// Why.
    pub reason: Reason,
}

/// What to recommend. None when nothing was measured.
///
/// What `lepus` does by itself stays unless a finalist is shown to be better than it in the fresh rounds, which had no
/// part in choosing the finalists: whatever the number of settings and rounds, something that is not better is
/// recommended with a risk of [`ADVICE_RISK`] at most. Of two finalists that are better the one with fewer shards is
/// taken if it is shown to reach 97 % of the other.
#[must_use]
pub fn advise(found: &Found<'_>) -> Option<Advice> {
    let (searched, fresh) = (found.searched(), found.fresh());
    let best = leader(&searched, found.is_in)?;
    let finalists = finalists(found);
    let advice = |choice, reason| Some(Advice { choice, best, reason });
    let named = leader(&searched, &comparable(found)).filter(|_| !finalists.is_empty());
    let Some(named) = named else {
        // Nothing seems better: by the nearest of them.
        let by_default =
            |at: usize| compare(&searched[at], &searched[0], Confidence::P95).filter(|_| at != 0);
        let nearest = (1..searched.len())
            .filter_map(by_default)
            .max_by(|a, b| a.value.partial_cmp(&b.value).unwrap_or(Ordering::Equal));
        return advice(0, nearest.map_or(Reason::Alone, Reason::NothingBetter));
    };
    let fewer = finalists.iter().copied().find(|at| *at != 0 && *at != named);
    // Each of them is asked about, and only one side of its interval counts.
    let risk = 2.0 * ADVICE_RISK / (finalists.len() - 1) as f64;
    let gain = |at: usize| compare(&fresh[at], &fresh[0], Confidence::Risk(risk));
    let is_better = |at: usize| gain(at).is_some_and(|gain| gain.low > 1.0);
    if let Some(fewer) = fewer.filter(|at| is_better(*at))
        && let Some(part) = compare(&fresh[fewer], &fresh[named], Confidence::P95)
        && part.low >= AS_GOOD
    {
        return advice(fewer, Reason::Fewer(part));
    }
    match gain(named) {
        Some(gain) if gain.low > 1.0 => advice(named, Reason::Better(gain)),
        Some(gain) => advice(0, Reason::NotConfirmed(gain)),
        None => {
            let before = compare(&searched[named], &searched[0], Confidence::P95);
            advice(0, before.map_or(Reason::Alone, Reason::NotConfirmed))
        }
    }
}

fn comparable(found: &Found<'_>) -> Vec<bool> {
    found.is_in.iter().zip(found.is_comparable).map(|(a, b)| *a && *b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lepus_base::Rng;

    fn scores(values: &[f64]) -> Scores {
        values.iter().copied().map(Some).collect()
    }

    /// 100 in each round, times `factor`, off by at most `noise`.
    fn noisy(factor: f64, noise: f64, rounds: usize) -> Scores {
        let wave = |round: usize| match round % 3 {
            0 => 1.0 + noise,
            1 => 1.0 - noise,
            _ => 1.0,
        };
        (0..rounds).map(|round| Some(100.0 * factor * wave(round))).collect()
    }

    #[test]
    fn the_leader_is_found_by_pairs_and_not_by_the_luck_of_its_rounds() {
        // The second one took part in the slow rounds only, and won each of them.
        let first = scores(&[100.0, 100.0, 10.0, 10.0, 10.0]);
        let second = vec![None, None, Some(12.0), Some(13.0), Some(12.5)];
        let all = [first, second];
        assert_eq!(leader(&all, &[true, true]), Some(1));
        assert_eq!(leader(&all, &[true, false]), Some(0));
        assert_eq!(leader(&all, &[false, false]), None);
        assert_eq!(leader(&[Vec::new(), scores(&[1.0])], &[true, true]), Some(1));
    }

    #[test]
    fn clear_losers_go_and_close_ones_stay() {
        let all = [noisy(1.0, 0.003, 4), noisy(0.7, 0.001, 4), noisy(0.99, 0.05, 4)];
        assert_eq!(losers(&all, &[true; 3], 10), [1]);
        // Not before the fourth round, however clear it looks.
        let early: Vec<Scores> = all.iter().map(|scores| scores[..3].to_vec()).collect();
        assert!(losers(&early, &[true; 3], 10).is_empty());
        // Nobody is out twice.
        assert!(losers(&all, &[true, false, true], 10).is_empty());
        // What lepus does by itself stays, however bad it is.
        let bad = [noisy(0.3, 0.01, 9), noisy(1.0, 0.01, 9)];
        assert!(losers(&bad, &[true; 2], 10).is_empty());
        assert_eq!(turns(0, &[true, false, true]), [0, 2]);
        assert_eq!(turns(1, &[true, false, true]), [2, 0]);
    }

    /// Search and fresh rounds alike.
    fn twice(all: &[Scores]) -> Vec<Scores> {
        all.iter().map(|scores| [scores.clone(), scores.clone()].concat()).collect()
    }

    fn advise_on(scores: &[Scores], shards: &[usize], search_rounds: usize) -> Option<Advice> {
        let all = vec![true; scores.len()];
        let found = Found { scores, is_in: &all, is_comparable: &all, shards, search_rounds };
        advise(&found)
    }

    #[test]
    fn the_default_stays_unless_something_is_shown_to_be_better() {
        let all = [noisy(1.0, 0.05, 10), noisy(0.99, 0.02, 10), noisy(0.5, 0.01, 10)];
        let advice = advise_on(&all, &[4, 2, 1], 10).unwrap();
        assert_eq!((advice.choice, advice.best), (0, 0));
        assert!(matches!(advice.reason, Reason::NothingBetter(gain) if gain.value < 1.0));
        // It seemed better, and in the fresh rounds it was not; or there were none.
        let lucky = [
            [noisy(1.0, 0.02, 10), noisy(1.0, 0.02, 10)].concat(),
            [noisy(1.1, 0.02, 10), noisy(1.0, 0.01, 10)].concat(),
        ];
        for rounds in [20, 10] {
            let all: Vec<Scores> = lucky.iter().map(|scores| scores[..rounds].to_vec()).collect();
            let advice = advise_on(&all, &[4, 2], 10).unwrap();
            assert_eq!((advice.choice, advice.best), (0, 1));
            assert!(matches!(advice.reason, Reason::NotConfirmed(_)), "{advice:?}");
        }
    }

    #[test]
    fn what_is_shown_to_be_better_is_recommended_and_fewer_shards_where_they_do() {
        // As the operators of 2011 found it: all 24 cores at 100, 3 of 4 nodes at 130.
        let all = [noisy(1.0, 0.02, 10), noisy(1.3, 0.02, 10), noisy(1.2, 0.02, 10)];
        let advice = advise_on(&twice(&all), &[24, 18, 12], 10).unwrap();
        assert_eq!(advice.choice, 1);
        let Reason::Better(gain) = advice.reason else { panic!("{advice:?}") };
        assert!((gain.value - 1.3).abs() < 0.01 && gain.low > 1.2);
        // 12 shards at 99 % of the best are enough.
        let all = [noisy(1.0, 0.02, 10), noisy(1.3, 0.02, 10), noisy(1.29, 0.02, 10)];
        let advice = advise_on(&twice(&all), &[24, 18, 12], 10).unwrap();
        assert_eq!((advice.choice, advice.best), (2, 1));
        assert!(matches!(advice.reason, Reason::Fewer(ratio) if ratio.low >= AS_GOOD));
    }

    #[test]
    fn what_cannot_be_compared_with_the_default_is_not_recommended() {
        let scores = twice(&[noisy(1.0, 0.02, 10), noisy(1.5, 0.02, 10)]);
        let found = Found {
            scores: &scores,
            is_in: &[true; 2],
            is_comparable: &[true, false],
            shards: &[2, 1],
            search_rounds: 10,
        };
        let advice = advise(&found).unwrap();
        assert_eq!((advice.choice, advice.best), (0, 1));
    }

    #[test]
    fn little_is_known_from_little() {
        assert_eq!(advise_on(&[Vec::new()], &[1], 4), None);
        let advice = advise_on(&[scores(&[5.0])], &[1], 4).unwrap();
        assert_eq!((advice.choice, advice.reason), (0, Reason::Alone));
        // One round compares nothing.
        let advice = advise_on(&[scores(&[5.0]), scores(&[9.0])], &[2, 1], 4).unwrap();
        assert_eq!((advice.choice, advice.reason), (0, Reason::Alone));
        // The default could not be measured at all: nothing is better than it that could be shown.
        let advice = advise_on(&[vec![None, None], scores(&[9.0, 9.0])], &[2, 1], 4).unwrap();
        assert_eq!((advice.choice, advice.reason), (0, Reason::Alone));
    }

    /// A normal deviate, near enough.
    fn deviate(rng: &mut Rng) -> f64 {
        let uniform = |rng: &mut Rng| rng.below(1 << 30) as f64 / f64::from(1 << 30);
        (0..12).map(|_| uniform(rng)).sum::<f64>() - 6.0
    }

    /// A whole tuning of settings whose true scores are `factors`: what is recommended, and what was given up.
    fn tuning(rng: &mut Rng, factors: &[f64], rounds: usize) -> (Advice, Vec<usize>) {
        let count = factors.len();
        let mut scores = vec![Scores::new(); count];
        let (mut is_in, all) = (vec![true; count], vec![true; count]);
        let shards: Vec<usize> = (0..count).map(|at| 2 * count - at).collect();
        let mut measure = |scores: &mut [Scores], round: usize, turns: &[usize]| {
            for at in turns {
                scores[*at].resize(round, None);
                scores[*at].push(Some(factors[*at] * (0.03 * deviate(rng)).exp()));
            }
        };
        let mut given_up = Vec::new();
        for round in 0..rounds {
            measure(&mut scores, round, &turns(round, &is_in));
            for at in losers(&scores, &is_in, rounds) {
                is_in[at] = false;
                given_up.push(at);
            }
        }
        let (is_in, is_comparable, shards) = (&is_in[..], &all[..], &shards[..]);
        let found = Found { scores: &scores, is_in, is_comparable, shards, search_rounds: rounds };
        let last = finalists(&found);
        for round in rounds..2 * rounds {
            measure(&mut scores, round, &last);
        }
        let found = Found { scores: &scores, is_in, is_comparable, shards, search_rounds: rounds };
        (advise(&found).unwrap(), given_up)
    }

    #[test]
    fn among_equal_settings_false_advice_is_rare_however_many_there_are_and_however_often() {
        const TRIALS: usize = 160;
        for (count, rounds) in [(2, 4), (2, 20), (6, 10), (10, 4), (10, 20), (16, 10)] {
            let mut rng = Rng::new(7 + (100 * count + rounds) as u64);
            let (mut false_advice, mut lost) = (0, 0);
            for _ in 0..TRIALS {
                let (advice, given_up) = tuning(&mut rng, &vec![1.0; count], rounds);
                false_advice += usize::from(advice.choice != 0);
                lost += usize::from(!given_up.is_empty());
                assert!(!given_up.contains(&0));
            }
            assert!(false_advice * 20 <= TRIALS, "{count} {rounds}: {false_advice}");
            assert!(lost * 50 <= TRIALS, "{count} {rounds}: {lost}");
        }
    }

    #[test]
    fn what_is_better_by_more_than_the_noise_is_found() {
        let mut rng = Rng::new(3);
        let factors = [1.0, 1.12, 0.8, 0.95, 1.0, 0.6];
        let (mut right, mut bad_ones) = (0, 0);
        for _ in 0..100 {
            let (advice, given_up) = tuning(&mut rng, &factors, 10);
            right += usize::from(advice.choice == 1);
            bad_ones += given_up.iter().filter(|at| [2, 5].contains(at)).count();
        }
        assert!(right >= 95, "{right}");
        assert!(bad_ones >= 190, "{bad_ones}");
    }
}
