//! Which settings are out, and which one is recommended: pure functions of the scores of rounds.

use super::statistics::{Confidence, Estimate, ratio};
use std::cmp::Ordering;

/// Before so many rounds nothing is given up.
pub const ROUNDS_BEFORE_DROP: usize = 4;
/// Fewer shards are preferred where they are shown to reach this share of the best.
pub const AS_GOOD: f64 = 0.97;

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

/// Those that are clearly worse than the leader: 99 times in 100 by more than chance, after at least four common
/// rounds. Since that is asked again after every round, the risk of losing a good one is somewhat higher than one in a
/// hundred; the one that is lost is close to the best then.
#[must_use]
pub fn losers(scores: &[Scores], is_in: &[bool]) -> Vec<usize> {
    let Some(best) = leader(scores, is_in) else { return Vec::new() };
    let is_lost = |at: &usize| {
        let ratio = compare(&scores[*at], &scores[best], Confidence::P99);
        *at != best
            && is_in[*at]
            && ratio.is_some_and(|ratio| ratio.count >= ROUNDS_BEFORE_DROP && ratio.high < 1.0)
    };
    (0..scores.len()).filter(is_lost).collect()
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

/// Why a setting is recommended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// There was nothing to compare it with.
    Alone,
    /// It is what `lepus` does by itself, and nothing is shown to be better; the leader by it.
    NothingBetter(Estimate),
    /// It is shown to be better than what `lepus` does by itself: by this ratio.
    Better(Estimate),
    /// The best is better than what `lepus` does by itself, but this one needs fewer shards and is shown to reach
    /// [`AS_GOOD`] of it: this one by the best.
    Fewer(Estimate),
}

/// A recommendation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// Which setting.
    pub choice: usize,
    /// The one with the highest mean.
    pub best: usize,
    /// Why.
    pub reason: Reason,
}

/// What to recommend; `shards` and `scores` are by setting, setting 0 is what `lepus` does by itself. None when nothing
/// was measured.
///
/// The default stays unless something is shown (19 times in 20) to be better than it. Of what is better the one with
/// the fewest shards is taken that is shown to reach 97 % of the best.
#[must_use]
pub fn advise(scores: &[Scores], is_in: &[bool], shards: &[usize]) -> Option<Advice> {
    let best = leader(scores, is_in)?;
    let advice = |choice, reason| Some(Advice { choice, best, reason });
    let gain = compare(&scores[best], &scores[0], Confidence::P95);
    let Some(gain) = gain.filter(|_| best != 0) else {
        // Alone, or before the rest of them.
        let others =
            (1..scores.len()).filter_map(|at| compare(&scores[at], &scores[0], Confidence::P95));
        let nearest =
            others.max_by(|a, b| a.value.partial_cmp(&b.value).unwrap_or(Ordering::Equal));
        return match nearest {
            Some(nearest) if best == 0 => advice(0, Reason::NothingBetter(nearest)),
            _ => advice(best, Reason::Alone),
        };
    };
    if gain.low <= 1.0 {
        return advice(0, Reason::NothingBetter(gain));
    }
    let as_good = |at: &usize| {
        let ratio = compare(&scores[*at], &scores[best], Confidence::P95)?;
        let gain = compare(&scores[*at], &scores[0], Confidence::P95)?;
        (shards[*at] < shards[best] && ratio.low >= AS_GOOD && gain.low > 1.0).then_some(ratio)
    };
    let fewer = (1..scores.len()).filter_map(|at| Some((at, as_good(&at)?)));
    match fewer.min_by_key(|(at, _)| shards[*at]) {
        Some((at, ratio)) => advice(at, Reason::Fewer(ratio)),
        None => advice(best, Reason::Better(gain)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let all = [noisy(1.0, 0.02, 4), noisy(0.7, 0.01, 4), noisy(0.99, 0.05, 4)];
        assert_eq!(losers(&all, &[true; 3]), [1]);
        // Not before the fourth round, however clear it looks.
        let early: Vec<Scores> = all.iter().map(|scores| scores[..3].to_vec()).collect();
        assert!(losers(&early, &[true; 3]).is_empty());
        // Nobody is out twice.
        assert!(losers(&all, &[true, false, true]).is_empty());
        assert_eq!(turns(0, &[true, false, true]), [0, 2]);
        assert_eq!(turns(1, &[true, false, true]), [2, 0]);
    }

    #[test]
    fn the_default_stays_unless_something_is_shown_to_be_better() {
        let all = [noisy(1.0, 0.05, 10), noisy(1.01, 0.02, 10), noisy(0.5, 0.01, 10)];
        let advice = advise(&all, &[true; 3], &[4, 2, 1]).unwrap();
        assert_eq!((advice.choice, advice.best), (0, 1));
        assert!(
            matches!(advice.reason, Reason::NothingBetter(gain) if gain.low < 1.0 && gain.high > 1.0)
        );
        let advice = advise(&all, &[true, false, false], &[4, 2, 1]).unwrap();
        assert!(advice.choice == 0 && matches!(advice.reason, Reason::NothingBetter(_)));
    }

    #[test]
    fn what_is_shown_to_be_better_is_recommended_and_fewer_shards_where_they_do() {
        // As the operators of 2011 found it: all 24 cores at 100, 3 of 4 nodes at 130.
        let all = [noisy(1.0, 0.02, 10), noisy(1.3, 0.02, 10), noisy(1.2, 0.02, 10)];
        let advice = advise(&all, &[true; 3], &[24, 18, 12]).unwrap();
        assert_eq!(advice.choice, 1);
        let Reason::Better(gain) = advice.reason else { panic!("{advice:?}") };
        assert!((gain.value - 1.3).abs() < 0.01 && gain.low > 1.2);
        // 12 shards at 99 % of the best are enough.
        let all = [noisy(1.0, 0.02, 10), noisy(1.3, 0.02, 10), noisy(1.29, 0.02, 10)];
        let advice = advise(&all, &[true; 3], &[24, 18, 12]).unwrap();
        assert_eq!((advice.choice, advice.best), (2, 1));
        assert!(matches!(advice.reason, Reason::Fewer(ratio) if ratio.low >= AS_GOOD));
    }

    #[test]
    fn little_is_known_from_little() {
        assert_eq!(advise(&[Vec::new()], &[true], &[1]), None);
        let advice = advise(&[scores(&[5.0])], &[true], &[1]).unwrap();
        assert_eq!((advice.choice, advice.reason), (0, Reason::Alone));
        // One round compares nothing.
        let advice = advise(&[scores(&[5.0]), scores(&[9.0])], &[true; 2], &[2, 1]).unwrap();
        assert_eq!((advice.choice, advice.reason), (0, Reason::Alone));
        // The default could not be measured at all.
        let advice = advise(&[vec![None, None], scores(&[9.0, 9.0])], &[true; 2], &[2, 1]).unwrap();
        assert_eq!((advice.choice, advice.reason), (1, Reason::Alone));
    }
}
