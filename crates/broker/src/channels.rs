//! The open channels of a connection, by number.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::channel::Channel;

/// Numbers below this always lie in the list.
const LISTED_MIN: usize = 64;

/// What an entry of the map takes, about.
const MAPPED_BYTES: usize = 24;

/// Channels by number. Most clients count from one: those lie in a list, found without a search. What
/// the list takes follows from how many are open and not from their numbers, so numbers far beyond
/// that lie in a map.
#[derive(Debug, Default)]
pub struct Channels {
    listed: Vec<Option<Box<Channel>>>,
    /// Only numbers beyond the list.
    beyond: BTreeMap<u16, Box<Channel>>,
    count: usize,
}

impl Channels {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that list and map take, the channels themselves not included.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.listed.capacity() * size_of::<Option<Box<Channel>>>()
            + self.beyond.len() * MAPPED_BYTES
    }

    /// The channel with this number.
    #[inline]
    #[must_use]
    pub fn get(&self, number: u16) -> Option<&Channel> {
        match self.listed.get(usize::from(number)) {
            Some(place) => place.as_deref(),
            None => self.beyond.get(&number).map(|channel| &**channel),
        }
    }

    /// The channel with this number.
    #[inline]
    pub fn get_mut(&mut self, number: u16) -> Option<&mut Channel> {
        match self.listed.get_mut(usize::from(number)) {
            Some(place) => place.as_deref_mut(),
            None => Self::get_beyond(&mut self.beyond, number),
        }
    }

    #[cold]
    fn get_beyond(beyond: &mut BTreeMap<u16, Box<Channel>>, number: u16) -> Option<&mut Channel> {
        beyond.get_mut(&number).map(|channel| &mut **channel)
    }

    /// A new channel.
    ///
    /// # Panics
    /// When its number is taken.
    pub fn insert(&mut self, number: u16, channel: Channel) -> &mut Channel {
        assert!(self.get(number).is_none(), "channel {number} is open");
        self.count += 1;
        let index = usize::from(number);
        if index >= self.listed.len() && index < LISTED_MIN.max(self.count * 4) {
            self.listed.resize_with(index + 1, || None);
            let beyond = self.beyond.split_off(&number);
            for (number, channel) in core::mem::replace(&mut self.beyond, beyond) {
                self.listed[usize::from(number)] = Some(channel);
            }
        }
        match self.listed.get_mut(index) {
            Some(place) => place.insert(Box::new(channel)),
            None => self.beyond.entry(number).or_insert(Box::new(channel)),
        }
    }

    /// Takes the channel with this number out.
    pub fn take(&mut self, number: u16) -> Option<Box<Channel>> {
        let channel = match self.listed.get_mut(usize::from(number)) {
            Some(place) => place.take(),
            None => self.beyond.remove(&number),
        }?;
        self.count -= 1;
        // Those in the map stay there: their numbers are beyond the shorter list, too.
        while let Some(None) = self.listed.last() {
            self.listed.pop();
        }
        Some(channel)
    }

    /// The first of them with a number of `number` or higher.
    #[must_use]
    pub fn from(&self, number: u16) -> Option<&Channel> {
        let listed = self.listed.get(usize::from(number)..).unwrap_or_default();
        let mut beyond = self.beyond.range(number..).map(|(_, channel)| &**channel);
        listed.iter().flatten().map(|channel| &**channel).next().or_else(|| beyond.next())
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.listed.iter().flatten().chain(self.beyond.values()).map(|channel| &**channel)
    }

    /// All of them, in the order of their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        let listed = self.listed.iter_mut().flatten();
        listed.chain(self.beyond.values_mut()).map(|channel| &mut **channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(channels: &mut Channels, number: u16) {
        channels.insert(number, Channel::new(1 << 16 | u64::from(number)));
    }

    fn numbers(channels: &Channels) -> Vec<u16> {
        channels.iter().map(|channel| channel.key as u16).collect()
    }

    #[test]
    fn what_a_channel_takes_does_not_follow_from_its_number() {
        let mut channels = Channels::default();
        for number in [u16::MAX, 40_000, 3] {
            open(&mut channels, number);
        }
        assert_eq!(numbers(&channels), [3, 40_000, u16::MAX]);
        assert!(channels.listed.capacity() <= LISTED_MIN);
        assert!(channels.get(u16::MAX).is_some() && channels.get_mut(40_000).is_some());
        assert!(channels.get(4).is_none() && channels.get(40_001).is_none());
        assert!(channels.take(40_000).is_some() && channels.take(40_000).is_none());
        assert_eq!((numbers(&channels), channels.len()), (alloc::vec![3, u16::MAX], 2));
    }

    #[test]
    fn channels_are_found_wherever_they_lie_as_the_list_grows_and_shrinks() {
        let mut channels = Channels::default();
        let mut random = lepus_base::Rng::new(7);
        let mut open_ones = alloc::collections::BTreeSet::new();
        for _ in 0..20_000 {
            let number = 1 + random.below(600) as u16;
            if open_ones.remove(&number) {
                assert!(channels.take(number).is_some());
            } else {
                open_ones.insert(number);
                open(&mut channels, number);
            }
            assert_eq!(channels.len(), open_ones.len());
        }
        assert!(numbers(&channels).iter().eq(&open_ones));
        for number in 0..700 {
            let next = channels.from(number).map(Channel::number);
            assert_eq!(next, open_ones.range(number..).next().copied());
            assert_eq!(channels.get(number).is_some(), open_ones.contains(&number));
        }
    }
}
