//! Who waits to be let in, by where they come from, and who gives way when the place is full.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};
use core::ops::Bound;

/// Where a peer comes from: an IPv4 address, or the 64 leading bits of an IPv6 address, which is what
/// one subscriber has to himself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin(IpAddr);

impl Origin {
    fn of(address: IpAddr) -> Origin {
        Origin(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address => address,
        })
    }
}

/// A member's number. Later ones are higher; none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Members of one kind, so that the oldest of the origin with the most is found at once.
#[derive(Debug, Default)]
struct Rank {
    origins: BTreeMap<Origin, BTreeSet<Ticket>>,
    /// The origins by their number of members; among equals the one with the oldest is last.
    sizes: BTreeSet<(usize, Reverse<Ticket>, Origin)>,
    /// How many members there are.
    count: usize,
}

/// While no more than one part in so many of all members is silent, who speaks may give way before they do.
const SILENT_PART: usize = 8;

impl Rank {
    fn change(&mut self, origin: Origin, change: impl FnOnce(&mut BTreeSet<Ticket>)) {
        let place = |members: &BTreeSet<Ticket>| {
            members.first().map(|oldest| (members.len(), Reverse(*oldest), origin))
        };
        let members = self.origins.entry(origin).or_default();
        let before = place(members);
        change(members);
        let after = place(members);
        if let Some(before) = before {
            self.sizes.remove(&before);
            self.count -= before.0;
        }
        match after {
            Some(after) => {
                self.sizes.insert(after);
                self.count += after.0;
            }
            None => {
                self.origins.remove(&origin);
            }
        }
    }

    fn first_to_go(&self) -> Option<Ticket> {
        self.sizes.last().map(|(_, Reverse(oldest), _)| *oldest)
    }

    /// How many members the origin with the most has.
    fn most(&self) -> usize {
        self.sizes.last().map_or(0, |(size, ..)| *size)
    }

    /// The oldest of the origin that follows `last`; behind the last one comes the first.
    fn following(&self, last: Option<Origin>) -> Option<(Origin, Ticket)> {
        let behind = last
            .and_then(|last| self.origins.range((Bound::Excluded(last), Bound::Unbounded)).next());
        let (origin, members) = behind.or_else(|| self.origins.first_key_value())?;
        Some((*origin, *members.first()?))
    }
}

#[derive(Debug)]
struct Member<K> {
    origin: Origin,
    is_silent: bool,
    key: K,
}

/// Those who wait, each under a key of the owner's. When there is no room for one more, somebody
/// gives way: of the origin with the most silent members the oldest silent one; where nobody is
/// silent, the oldest of the origin with the most. Of origins with as many the one with the oldest. So whoever
/// speaks gets in, and whoever comes from elsewhere does, however many wait.
///
/// Everybody is silent at first. Where few are, and another origin has more that speak, one of those
/// gives way instead: otherwise who speaks at once and stays would send away everybody who needs a moment.
#[derive(Debug)]
pub struct Crowd<K> {
    members: BTreeMap<Ticket, Member<K>>,
    silent: Rank,
    speaking: Rank,
    /// Where the member came from whose turn was last.
    last: Option<Origin>,
    next: u64,
}

impl<K> Default for Crowd<K> {
    fn default() -> Crowd<K> {
        Crowd {
            members: BTreeMap::new(),
            silent: Rank::default(),
            speaking: Rank::default(),
            last: None,
            next: 0,
        }
    }
}

impl<K: Copy> Crowd<K> {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// One more, who has not said anything yet.
    pub fn enter(&mut self, address: IpAddr, key: K) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        let origin = Origin::of(address);
        self.members.insert(ticket, Member { origin, is_silent: true, key });
        self.silent.change(origin, |members| {
            members.insert(ticket);
        });
        ticket
    }

    /// The member has said something (`is_silent` false), or has nothing more to say for now.
    pub fn set_silent(&mut self, ticket: Ticket, is_silent: bool) {
        let Some(member) = self.members.get_mut(&ticket) else {
            return crate::race!("the member has left");
        };
        if member.is_silent == is_silent {
            return;
        }
        member.is_silent = is_silent;
        let origin = member.origin;
        let (from, to) = match is_silent {
            true => (&mut self.speaking, &mut self.silent),
            false => (&mut self.silent, &mut self.speaking),
        };
        from.change(origin, |members| {
            members.remove(&ticket);
        });
        to.change(origin, |members| {
            members.insert(ticket);
        });
    }

    /// The member waits no longer; its key, if it still waited.
    pub fn leave(&mut self, ticket: Ticket) -> Option<K> {
        let member = self.members.remove(&ticket)?;
        let rank = if member.is_silent { &mut self.silent } else { &mut self.speaking };
        rank.change(member.origin, |members| {
            members.remove(&ticket);
        });
        Some(member.key)
    }

    /// Sends away whoever is to give way; its key, if anybody waits.
    pub fn give_way(&mut self) -> Option<K> {
        let (silent, speaking) = (&self.silent, &self.speaking);
        let is_crowd_speaking =
            silent.count * SILENT_PART <= self.members.len() && speaking.most() > silent.most();
        let (first, second) =
            if is_crowd_speaking { (speaking, silent) } else { (silent, speaking) };
        let ticket = first.first_to_go().or_else(|| second.first_to_go())?;
        self.leave(ticket)
    }

    /// Whether anybody waits who has said something.
    #[must_use]
    pub fn speaks(&self) -> bool {
        !self.speaking.origins.is_empty()
    }

    /// The key of the member whose turn it is of those that have said something: the origins take turns,
    /// however many members each has, and of one the member comes that has waited longest.
    pub fn take_turn(&mut self) -> Option<K> {
        let (origin, ticket) = self.speaking.following(self.last)?;
        self.last = Some(origin);
        self.members.get(&ticket).map(|member| member.key)
    }

    /// The key of the member that has waited longest.
    #[must_use]
    pub fn oldest(&self) -> Option<K> {
        self.members.first_key_value().map(|(_, member)| member.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn all_in_order(crowd: &mut Crowd<u32>) -> Vec<u32> {
        core::iter::from_fn(|| crowd.give_way()).collect()
    }

    #[test]
    fn the_oldest_of_the_origin_with_the_most_gives_way() {
        let mut crowd = Crowd::default();
        crowd.enter(address("10.0.0.9"), 0);
        for key in 1..=3 {
            crowd.enter(address("10.0.0.1"), key);
        }
        crowd.enter(address("10.0.0.2"), 4);
        assert_eq!((crowd.len(), crowd.oldest()), (5, Some(0)));
        assert_eq!(crowd.give_way(), Some(1));
        assert_eq!(crowd.give_way(), Some(2));
        assert_eq!(all_in_order(&mut crowd), [0, 3, 4]);
        assert!(crowd.is_empty() && crowd.oldest().is_none());
    }

    #[test]
    fn who_speaks_stays_while_anybody_is_silent() {
        let mut crowd = Crowd::default();
        let here = address("10.0.0.1");
        let tickets: Vec<Ticket> = (0..4).map(|key| crowd.enter(here, key)).collect();
        let elsewhere = crowd.enter(address("10.0.0.2"), 4);
        for ticket in [tickets[0], tickets[1], tickets[3], elsewhere] {
            crowd.set_silent(ticket, false);
        }
        crowd.set_silent(tickets[3], true);
        assert_eq!(all_in_order(&mut crowd), [2, 3, 0, 1, 4]);
    }

    #[test]
    fn origins_take_turns_however_many_members_they_have() {
        let mut crowd = Crowd::default();
        let mut enter = |text: &str, key: u32| {
            let ticket = crowd.enter(address(text), key);
            crowd.set_silent(ticket, false);
            ticket
        };
        let mut tickets: Vec<Ticket> = (0..5).map(|key| enter("10.0.0.2", key)).collect();
        tickets.push(enter("10.0.0.9", 5));
        tickets.push(enter("10.0.0.1", 6));
        crowd.enter(address("10.0.0.3"), 7);
        let order: Vec<u32> = core::iter::from_fn(|| {
            let key = crowd.take_turn()?;
            crowd.leave(tickets[key as usize]);
            Some(key)
        })
        .collect();
        assert_eq!(order, [6, 0, 5, 1, 2, 3, 4]);
        assert!(!crowd.speaks() && crowd.len() == 1);
    }

    #[test]
    fn a_crowd_that_speaks_sends_nobody_away_who_has_just_come() {
        let mut crowd = Crowd::default();
        for key in 0..100 {
            let ticket = crowd.enter(address("10.0.0.1"), key);
            crowd.set_silent(ticket, false);
        }
        let newcomer = crowd.enter(address("10.0.0.2"), 100);
        let mut gone: Vec<u32> = (0..50).filter_map(|_| crowd.give_way()).collect();
        assert!(gone.iter().copied().eq(0..50));
        // Many silent ones go first, wherever they come from.
        for key in 101..121 {
            crowd.enter(address(&alloc::format!("10.0.1.{key}")), key);
        }
        gone = (0..12).filter_map(|_| crowd.give_way()).collect();
        assert!(gone.iter().copied().eq(100..112));
        assert_eq!(crowd.leave(newcomer), None);
    }

    #[test]
    fn who_left_is_not_sent_away() {
        let mut crowd = Crowd::default();
        let ticket = crowd.enter(address("10.0.0.1"), 7);
        assert_eq!(crowd.leave(ticket), Some(7));
        assert_eq!(crowd.leave(ticket), None);
        crowd.set_silent(ticket, false);
        assert_eq!(crowd.give_way(), None);
    }

    #[test]
    fn the_addresses_of_one_subscriber_are_one_origin() {
        let same = |a: &str, b: &str| Origin::of(address(a)) == Origin::of(address(b));
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"));
        assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
