/// Bytes that go out one behind the other, from where they lie: mostly one slice. Any of them may be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slices<'a> {
    /// What goes out first.
    pub first: &'a [u8],
    /// What goes behind it.
    pub more: Option<[&'a [u8]; 3]>,
}

impl<'a> Slices<'a> {
    /// One slice alone.
    #[inline]
    #[must_use]
    pub fn of(first: &'a [u8]) -> Slices<'a> {
        Slices { first, more: None }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> [&'a [u8]; 4] {
        let [second, third, fourth] = self.more.unwrap_or_default();
        [self.first, second, third, fourth]
    }

    /// How many bytes there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        let more = self.more.iter().flatten().map(|slice| slice.len());
        self.first.len() + more.sum::<usize>()
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
