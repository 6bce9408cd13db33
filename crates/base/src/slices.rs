/// Bytes in the order in which they go out, from where they lie. Any of the slices may be empty.
pub type Slices<'a> = [&'a [u8]; SLICES];

/// How many slices go out at once.
const SLICES: usize = 4;
